/* Each native library's answers against plain loops in double: each operator and gradient, many attributes,
 * empty tensors, and runs from threads that did not bind.  Libraries are looked for in
 * $DCML_LIBRARIES too; where one is missing the test says so. */
#include <omp.h>

#include "base/fingerprint.h"
#include "native_cases.h"

/* Images come channels-last, results leave so or in rows. */
static void check_images_channels_last(void) {
  meets.last = meets.rows = true;
  convolutions_equal_the_loops();
  meets.leaves_rows = true;
  convolutions_equal_the_loops();
  memset(&meets, 0, sizeof meets);
}

static void check_library(const dc_native_library *which) {
  library = which;
  const char *why = library->open(getenv("DCML_LIBRARIES"), NULL, &handle);
  if (why) {
    printf("%s is skipped: %s\n", library->name, why);
    return;
  }
  convolutions_equal_the_loops();
  products_equal_the_loops();
  if (library == &dc_native_onednn) check_images_channels_last();
  meets.type = DC_BF16, meets.tolerance = 8e-3;
  meets.refusals = "this processor multiplies f32 quicker than bf16; a type other than f32 and f64";
  convolutions_equal_the_loops();
  products_equal_the_loops();
  meets.type = DC_F64, meets.tolerance = 0, meets.refusals = "a type other than f32 and bf16";
  convolutions_equal_the_loops();
  products_equal_the_loops();
  memset(&meets, 0, sizeof meets);
  calls_run_in_threads_that_did_not_bind_them();
  meets.params = true;
  convolutions_equal_the_loops();
  products_equal_the_loops();
  calls_run_in_threads_that_did_not_bind_them();
  meets.params = false, meets.again = true;
  convolutions_equal_the_loops();
  meets.again = false;
  library->close(handle);
}

/* ---- Winograd's form, which stands in for the libraries ---- */

/* Odd extents, all paddings, three blocks of channels, many tiles for few filters and few for many. */
static const conv squares[] = {
    {"ranges of tiles", "", 2, 2, 32, 48, 1, {13, 17}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true},
    {"padded by 0 and 2", "", 2, 3, 64, 32, 1, {9, 10}, {3, 3}, {1, 1}, {1, 1}, {0, 2}, {0, 2}, false},
    {"asymmetric pads", "", 2, 2, 32, 64, 1, {16, 12}, {3, 3}, {1, 1}, {1, 1}, {0, 1}, {2, 0}, false},
    {"sums of each thread", "", 2, 2, 32, 32, 1, {29, 31}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false},
    {"panels of filters", "", 2, 2, 64, 112, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true},
};

static bool is_taken(const conv *c, uint32_t wrt) {
  shape y;
  bound b = make_conv(c, wrt, &y);
  bind_it(&b);
  const bool taken = b.call != NULL;
  finish(&b);
  return taken;
}

static void it_takes(const conv *c) {
  for (uint32_t wrt = 0; wrt < 3; wrt++) CHECK(is_taken(c, wrt));
}

static void it_leaves_to_others(const conv *c) { CHECK(!is_taken(c, 0)); }

static void squares_equal_the_loops(void) {
  for (size_t k = 0; k < sizeof squares / sizeof *squares; k++) {
    it_takes(&squares[k]);
    one_equals_the_loops(&squares[k]);
  }
  meets.params = true;
  convolutions_of(squares, sizeof squares / sizeof *squares);
  meets.params = false;
}

static void check_winograd(void) {
  static const uint32_t widths[] = {16, 32, 64};
  library = &dc_native_winograd;
  CHECK(!library->open(NULL, NULL, &handle));
  meets.insists = true;
  it_leaves_to_others(&squares[0]); /* of images that lie row-major */
  meets.last = meets.rows = true;
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
    meets.vector_bytes = widths[w];
    squares_equal_the_loops();
    for (size_t k = 0; k < sizeof convs / sizeof *convs; k++) it_leaves_to_others(&convs[k]);
  }
  meets.type = DC_BF16, meets.tolerance = 4e-2;
  if (dc_machine_bf16_way() == DC_BF16_IN_PAIRS) squares_equal_the_loops(), meets.vector_bytes = 32; /* there are no shorter ones */
  it_leaves_to_others(&squares[0]);
  memset(&meets, 0, sizeof meets);
  library->close(handle);
}

/* ---- windows of one pixel, of images that lie row-major ---- */

/* Panels of all heights, the last strip of one vector or less, several blocks, several images in a unit. */
static const conv pixels[] = {
    {"whole vectors", "", 2, 2, 24, 24, 1, {16, 16}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false},
    {"odd extents", "", 2, 3, 7, 17, 1, {13, 11}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, true},
    {"a dilation of nothing", "", 2, 4, 41, 33, 1, {10, 15}, {1, 1}, {1, 1}, {3, 2}, {0, 0}, {0, 0}, true},
    {"one channel", "", 2, 2, 1, 1, 1, {15, 17}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, true},
    {"many filters", "", 2, 1, 3, 80, 1, {19, 30}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, true},
    {"blocks", "", 2, 1, 200, 5, 1, {37, 41}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false},
    {"small images together", "", 2, 11, 6, 9, 1, {5, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false},
    {"sums of many channels over few pixels", "", 2, 7, 130, 301, 1, {6, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, true},
    {"the same, turned", "", 2, 7, 301, 130, 1, {6, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false},
    {"a line", "", 1, 2, 5, 14, 1, {333}, {1}, {1}, {1}, {0}, {0}, true},
    {"a volume", "", 3, 2, 5, 4, 1, {5, 6, 7}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, true},
};
static const conv no_pixels[] = {
    {"few pixels", "", 2, 2, 24, 24, 1, {5, 5}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false},
    {"a stride", "", 2, 2, 24, 24, 1, {32, 32}, {1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, false},
    {"padding", "", 2, 2, 24, 24, 1, {32, 32}, {1, 1}, {1, 1}, {1, 1}, {1, 0}, {0, 1}, false},
    {"groups", "", 2, 2, 24, 24, 2, {32, 32}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false},
    {"windows", "", 2, 2, 24, 24, 1, {32, 32}, {1, 2}, {1, 1}, {1, 1}, {0, 0}, {0, 1}, false},
    {"no images", "", 2, 0, 24, 24, 1, {32, 32}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false},
};

static void check_pointwise(void) {
  static const uint32_t widths[] = {32, 64};
  library = &dc_native_pointwise;
  CHECK(!library->open(NULL, NULL, &handle));
  meets.insists = true, meets.vector_bytes = 16;
  it_leaves_to_others(&pixels[0]); /* of short vectors */
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
    meets.vector_bytes = widths[w];
    for (size_t k = 0; k < sizeof pixels / sizeof *pixels; k++) {
      it_takes(&pixels[k]);
      one_equals_the_loops(&pixels[k]);
    }
    meets.shift = sizeof(float);
    convolutions_of(pixels, sizeof pixels / sizeof *pixels);
    meets.shift = 0;
    for (size_t k = 0; k < sizeof no_pixels / sizeof *no_pixels; k++) it_leaves_to_others(&no_pixels[k]);
  }
  meets.last = true;
  it_leaves_to_others(&pixels[0]);
  memset(&meets, 0, sizeof meets);
}

/* ---- gradients of filters for single channels that lie side by side ---- */

/* Channels that fill vectors and that do not, filters of all widths, in bands where a line of the image is long. */
static const conv side_by_side[] = {
    {"whole vectors", "", 2, 2, 32, 32, 32, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false},
    {"odd channels", "", 2, 3, 37, 37, 37, {6, 8}, {5, 5}, {1, 1}, {1, 1}, {2, 2}, {2, 2}, true},
    {"less than a vector", "", 2, 2, 3, 3, 3, {8, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false},
    {"a stride and uneven pads", "", 2, 2, 19, 19, 19, {11, 10}, {3, 5}, {2, 3}, {1, 1}, {0, 2}, {1, 1}, false},
    {"dilations", "", 2, 2, 18, 18, 18, {12, 13}, {3, 3}, {1, 2}, {2, 3}, {2, 3}, {2, 3}, false},
    {"wide filters", "", 2, 1, 17, 17, 17, {14, 13}, {7, 9}, {1, 1}, {1, 1}, {3, 4}, {3, 4}, false},
    {"all of it padding but a corner", "", 2, 2, 16, 16, 16, {2, 2}, {5, 5}, {1, 1}, {1, 1}, {4, 4}, {4, 4}, false},
    {"bands", "", 2, 2, 20, 20, 20, {70, 90}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false},
    {"more bands than parts", "", 2, 9, 8, 8, 8, {40, 500}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false},
    {"many images", "", 2, 150, 24, 24, 24, {3, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, false},
    {"a line", "", 1, 2, 21, 21, 21, {90}, {4}, {2}, {1}, {1}, {2}, false},
};

static void check_depthwise_last(void) {
  static const uint32_t widths[] = {32, 64};
  const size_t n = sizeof side_by_side / sizeof *side_by_side;
  library = &dc_native_depthwise_last;
  CHECK(!library->open(NULL, NULL, &handle));
  meets.insists = true, meets.vector_bytes = 32;
  CHECK(!is_taken(&side_by_side[0], 2)); /* of images that lie row-major */
  meets.last = meets.rows = true;
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
    for (int threads = 1; threads <= 3 && dc_machine_built_vectors(32); threads++) {
      omp_set_num_threads(threads);
      meets.vector_bytes = widths[w], meets.shift = threads == 3 ? (int)sizeof(float) : 0;
      for (size_t k = 0; k < n; k++) {
        CHECK(!is_taken(&side_by_side[k], 0) && !is_taken(&side_by_side[k], 1) && is_taken(&side_by_side[k], 2));
        result_equals_the_loops(&side_by_side[k], 2);
      }
      CHECK(!is_taken(&no_pixels[3], 2)); /* two groups */
    }
  meets.vector_bytes = 16;
  CHECK(!is_taken(&side_by_side[0], 2));
  memset(&meets, 0, sizeof meets);
  library->close(handle);
}

/* ---- few pixels and many filters ---- */

/* Of 2^20 numbers or a few more: whole vectors of windows, one window more, some more; several images, and what is read outside. */
static const conv unfoldable[] = {
    {"one window more than vectors", "", 2, 1, 343, 343, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true},
    {"a vector of windows", "", 2, 1, 352, 336, 1, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false},
    {"several images", "", 2, 5, 330, 360, 1, {3, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true},
    {"strides, dilations and uneven pads", "", 2, 1, 500, 353, 1, {11, 13}, {2, 3}, {2, 3}, {2, 1}, {0, 2}, {1, 0}, true},
    {"one window", "", 2, 1, 500, 353, 1, {2, 3}, {2, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, true},
    {"a line", "", 2, 1, 700, 501, 1, {1, 9}, {1, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false},
};
static const conv left_folded[] = {
    {"few filters", "", 2, 1, 64, 64, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false},
    {"many pixels", "", 2, 2, 343, 343, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false},
    {"windows of one pixel", "", 2, 1, 1024, 1030, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false},
    {"groups", "", 2, 1, 686, 343, 2, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false},
    {"a volume", "", 3, 1, 343, 343, 1, {2, 2, 2}, {3, 3, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 0}, {1, 1, 0}, false},
    {"no images", "", 2, 0, 343, 343, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false},
};

static void unfolded_convolutions_equal_the_loops(void) {
  static const uint32_t widths[] = {32, 64};
  library = &dc_native_unfolded;
  CHECK(!library->open(NULL, NULL, &handle));
  meets.insists = true, meets.vector_bytes = 64;
  it_leaves_to_others(&unfoldable[0]); /* of images that lie row-major */
  meets.last = meets.rows = true;
  for (size_t w = 0; w < sizeof widths / sizeof *widths && dc_machine_built_vectors(32); w++) {
    meets.vector_bytes = widths[w];
    for (size_t k = 0; k < sizeof unfoldable / sizeof *unfoldable; k++) {
      omp_set_num_threads(1 + (int)k % 3);
      CHECK(is_taken(&unfoldable[k], 0));
      result_equals_the_loops(&unfoldable[k], 0);
    }
    CHECK(!is_taken(&unfoldable[0], 1) && !is_taken(&unfoldable[0], 2));
    for (size_t k = 0; k < sizeof left_folded / sizeof *left_folded; k++) it_leaves_to_others(&left_folded[k]);
  }
  memset(&meets, 0, sizeof meets);
  library->close(handle);
}

/* ---- products for vectors of AVX2 ---- */

static const product clashing[] = {
    {"a row of columns that clash", "MatMul", 0, 41, 300, 512, false, false, false, false},
    {"rows of both across the terms", "Gemm", 0, 512, 37, 43, false, true, false, true},
    {"a row for strips of one vector", "Gemm", 0, 512, 270, 24, false, true, false, false},
    {"several blocks of columns and rows", "Gemm", 0, 200, 20, 1024, false, false, false, true},
    {"a batch of few", "MatMul", 3, 150, 9, 512, false, false, false, false},
    {"a batch of tiny ones", "MatMul", 37, 9, 11, 8, false, false, false, false},
    {"a batch of tiny ones, odd", "MatMul", 5, 16, 33, 25, false, false, false, false},
};
static const product others_are_as_fast[] = {
    {"one tiny one", "MatMul", 0, 8, 8, 8, false, false, false, false},
    {"a batch of large ones", "MatMul", 4, 48, 64, 48, false, false, false, false},
    {"both extents large", "MatMul", 0, 1024, 4, 1024, false, false, false, false},
    {"b turned", "Gemm", 0, 64, 16, 512, false, false, true, false},
};

static bool takes(const product *p, uint32_t wrt) {
  bound b = make_product(p, wrt);
  bind_it(&b);
  const bool taken = b.call != NULL;
  finish(&b);
  return taken;
}

static void routines_for_products_equal_the_loops(void) {
  const size_t n = sizeof clashing / sizeof *clashing, n_others = sizeof others_are_as_fast / sizeof *others_are_as_fast;
  const bool runs = dc_machine_built_vectors(32) == 32;
  library = &dc_native_products;
  CHECK(!library->open(NULL, NULL, &handle));
  meets.insists = true, meets.vector_bytes = 64;
  CHECK(!takes(&clashing[0], 0)); /* which are wider */
  meets.vector_bytes = 32;
  for (size_t k = 0; k < n_others; k++) CHECK(!takes(&others_are_as_fast[k], 0));
  for (int threads = 1; threads <= 4 && runs; threads++) {
    omp_set_num_threads(threads);
    for (size_t k = 0; k < n; k++) CHECK(takes(&clashing[k], 0));
    products_of(clashing, n);
  }
  memset(&meets, 0, sizeof meets);
  library->close(handle);
}

static const char square_text[] = "graph g { input X: f32[4, 64, 16, 16] strides [16384, 1, 1024, 64] input W: f32[64, 64, 3, 3]"
                                  " temp Y: f32[4, 64, 14, 14] strides [12544, 1, 896, 64] outputs Y state s { Y = Conv@11(X, W) : openblas } }";

static void it_stands_in_unless_another_is_asked_for(void) {
  const dc_native_library *const list[] = {&dc_native_openblas, &dc_native_winograd, NULL};
  for (int asked = 0; asked < 3; asked++) {
    const bool wins = asked == 2;
    dc_natives *natives;
    dc_native_call *call = NULL;
    dc_graph *g;
    CHECK_OK(dc_natives_create(list, asked ? NULL : "openblas", getenv("DCML_LIBRARIES"), NULL, &natives));
    CHECK_OK(dc_graph_parse(square_text, &g));
    dc_status status = dc_native_bind(natives, wins ? NULL : "openblas", g, 1, NULL, &call);
    if (!status) CHECK_TEXT(dc_native_name(call), wins ? "winograd" : "openblas");
    dc_status_free(status); /* openblas is not here */
    dc_native_call_destroy(call);
    dc_graph_destroy(g);
    dc_natives_destroy(natives);
  }
}

/* ---- a filter for each channel ---- */

static const conv depthwise[] = {
    {"narrower than a vector", "", 2, 2, 3, 3, 3, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true},
    {"wider than two", "", 2, 2, 5, 5, 5, {9, 47}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false},
    {"stride 2, narrow", "", 2, 2, 4, 4, 4, {13, 14}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, true},
    {"stride 2, wide", "", 2, 2, 3, 3, 3, {10, 75}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, false},
    {"stride 2, even filter, nothing in front", "", 2, 1, 3, 3, 3, {40, 80}, {2, 4}, {2, 2}, {1, 1}, {0, 0}, {1, 3}, false},
    {"stride 3 and 1, dilation 1 and 2", "", 2, 2, 2, 2, 2, {17, 41}, {5, 3}, {3, 1}, {1, 2}, {2, 2}, {1, 0}, true},
    {"stride beyond the filter", "", 2, 2, 3, 3, 3, {21, 19}, {1, 2}, {3, 5}, {1, 1}, {0, 1}, {0, 0}, true},
    {"7x7", "", 2, 2, 3, 3, 3, {14, 33}, {7, 7}, {1, 1}, {1, 1}, {3, 3}, {3, 3}, false},
    {"9x6 in more padding than image", "", 2, 1, 2, 2, 2, {3, 2}, {9, 6}, {1, 2}, {1, 1}, {8, 7}, {8, 4}, true},
    {"4x8, dilation 3 and 2", "", 2, 1, 2, 2, 2, {30, 50}, {4, 8}, {1, 1}, {3, 2}, {4, 7}, {5, 7}, false},
    {"bands", "", 2, 1, 2, 2, 2, {97, 150}, {5, 5}, {1, 1}, {1, 1}, {2, 2}, {2, 2}, true},
    {"bands of every other row", "", 2, 1, 2, 2, 2, {150, 203}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, false},
    {"channels for all threads", "", 2, 3, 9, 9, 9, {40, 37}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true},
    {"bands of many channels", "", 2, 2, 9, 9, 9, {97, 150}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false},
    {"a line", "", 1, 3, 4, 4, 4, {300}, {4}, {1}, {1}, {3}, {0}, true},
    {"a line, every third", "", 1, 2, 3, 3, 3, {301}, {5}, {3}, {2}, {4}, {1}, false},
    {"one channel", "", 2, 3, 1, 1, 1, {12, 12}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true},
    {"one pixel", "", 2, 2, 5, 5, 5, {1, 1}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, true},
    {"SAME_LOWER", "SAME_LOWER", 2, 1, 3, 3, 3, {7, 36}, {2, 3}, {2, 1}, {1, 1}, {1, 1}, {0, 1}, false},
    {"no images", "", 2, 0, 3, 3, 3, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true},
};

static const conv several[] = {
    {"two filters for a channel", "", 2, 2, 3, 6, 3, {9, 17}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true},
    {"filters for one channel, for all threads", "", 2, 3, 1, 9, 1, {12, 35}, {5, 5}, {1, 1}, {1, 1}, {2, 2}, {2, 2}, false},
    {"filters for one channel, stride 2, in bands", "", 2, 2, 1, 5, 1, {97, 150}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, true},
    {"filters for a line", "", 1, 3, 2, 8, 2, {300}, {3}, {1}, {1}, {1}, {1}, true},
};

static void filters_for_one_channel_equal_the_loops(void) {
  for (size_t k = 0; k < sizeof several / sizeof *several; k++) {
    result_equals_the_loops(&several[k], 0);
    result_equals_the_loops(&several[k], 2);
  }
}

static void routines_for_single_channels_equal_the_loops(void) {
  static const uint32_t vectors[] = {16, 32, 64}; /* of those, what this processor has */
  library = &dc_native_depthwise;
  CHECK(!library->open(NULL, NULL, &handle));
  for (int k = 0; k < 3; k++) {
    memset(&meets, 0, sizeof meets);
    meets.vector_bytes = vectors[k], meets.insists = true;
    convolutions_of(depthwise, sizeof depthwise / sizeof *depthwise);
    filters_for_one_channel_equal_the_loops();
    meets.shift = sizeof(float), meets.trained = true;
    convolutions_of(depthwise, sizeof depthwise / sizeof *depthwise);
    filters_for_one_channel_equal_the_loops();
  }
  memset(&meets, 0, sizeof meets);
  library->close(handle);
}

/* ---- the choice ---- */

static const char conv_text[] = "graph g { symbol N >= 1 input X: %s[1, 2, 5, 5] input W: %s[2, 2, 3, 3] temp Y: %s[1, 2, N, N] outputs Y"
                           " state s { Y = Conv@11(X, W) @first } }";

static dc_graph *stamped(dc_natives *natives, dc_ops *ops, const char *type, const char *only) {
  char text[512];
  dc_graph *g = NULL;
  snprintf(text, sizeof text, conv_text, type, type, type);
  CHECK_OK(dc_graph_parse(text, &g));
  dc_natives_stamp(natives, ops, g, 1, only);
  return g;
}

static void check_stamp(dc_graph *g, const char *line) {
  dc_text once = {0}, again = {0};
  dc_graph *parsed = NULL;
  dc_graph_print(g, &once);
  CHECK(strstr(once.s, line));
  CHECK_OK(dc_graph_parse(once.s, &parsed));
  dc_graph_print(parsed, &again);
  CHECK_TEXT(again.s, once.s);
  dc_graph_destroy(parsed);
  dc_graph_destroy(g);
  dc_text_free(&once);
  dc_text_free(&again);
}

static void a_choice_is_stamped_with_its_reason(void) {
  const dc_native_library *const list[] = {&dc_native_onednn, &dc_native_openblas, NULL};
  dc_natives *all, *none;
  dc_ops *ops;
  dc_native_call *call;
  CHECK_OK(dc_ops_create(&ops));
  CHECK_OK(dc_natives_create(list, NULL, getenv("DCML_LIBRARIES"), NULL, &all));
  CHECK_OK(dc_natives_create(list, "none", NULL, NULL, &none));
  check_stamp(stamped(none, ops, "f32", NULL), "Conv@11(X, W) : none (\"onednn: not loaded; openblas: not loaded\") @first");
  check_stamp(stamped(none, ops, "f32", "other"), "Conv@11(X, W) : none (\"onednn: not asked for; openblas: not asked for\") @first");
  dc_graph *g = stamped(none, ops, "f32", NULL);
  int64_t symbols[] = {0, 3};
  CHECK_ERROR(dc_native_bind(none, NULL, g, 1, symbols, &call), DC_ERR_UNSUPPORTED, "no library runs it: onednn: not loaded");
  dc_graph_destroy(g);
  g = stamped(all, ops, "f32", "onednn");
  if (dc_node_at(g, 1)->lib.by) { /* it is there */
    CHECK_ERROR(dc_native_bind(none, NULL, g, 1, symbols, &call), DC_ERR_UNSUPPORTED, "is to be run by onednn, which is not loaded");
    CHECK_OK(dc_native_bind(all, NULL, g, 1, symbols, &call));
    dc_native_call_destroy(call);
    symbols[1] = 4; /* which is not what a window of 3 leaves of 5 */
    CHECK_ERROR(dc_native_bind(all, NULL, g, 1, symbols, &call), DC_ERR_DEVICE, "onednn accepted the operator, but not with these sizes");
    check_stamp(stamped(all, ops, "f32", NULL), "Conv@11(X, W) : onednn @first");
    check_stamp(stamped(all, ops, "f64", "onednn"), "Conv@11(X, W) : none (\"onednn: a type other than f32 and bf16; openblas: not asked for\") @first");
  }
  dc_graph_destroy(g);
  dc_natives_destroy(all);
  dc_natives_destroy(none);
  dc_ops_destroy(ops);
}

/* ---- what is held ---- */

/* Any bit, wherever it stands; words that change places; memory that goes on with zeros. */
static void contents_are_told_apart(void) {
  enum { BYTES = 203 };
  unsigned char a[BYTES + 64] = {0}, b[BYTES + 64];
  for (int k = 0; k < BYTES; k++) a[k] = (unsigned char)(k * 37 ^ k >> 3);
  dc_fingerprint of = dc_fingerprint_of(a, BYTES);
  for (int k = 0; k < 8 * BYTES; k++) {
    a[k / 8] ^= (unsigned char)(1 << k % 8);
    dc_fingerprint other = dc_fingerprint_of(a, BYTES);
    CHECK(other.sums != of.sums && other.bits != of.bits);
    a[k / 8] ^= (unsigned char)(1 << k % 8);
  }
  for (int shift = 0; shift < 64; shift++) {
    memcpy(b + shift, a, BYTES);
    CHECK(dc_fingerprint_same(dc_fingerprint_of(b + shift, BYTES), of));
  }
  for (int from = 0; from < 64; from += 8) /* words in one lane, and in others */
    for (int to = from + 8; to + 8 <= BYTES; to += 8) {
      memcpy(b, a, BYTES);
      memcpy(b + from, a + to, 8), memcpy(b + to, a + from, 8);
      CHECK(!dc_fingerprint_same(dc_fingerprint_of(b, BYTES), of));
    }
  CHECK(!dc_fingerprint_same(dc_fingerprint_of(a, BYTES + 8), of));
}

int main(void) {
  contents_are_told_apart();
  a_choice_is_stamped_with_its_reason();
  check_library(&dc_native_onednn);
  check_library(&dc_native_openblas);
  check_winograd();
  check_pointwise();
  check_depthwise_last();
  it_stands_in_unless_another_is_asked_for();
  routines_for_single_channels_equal_the_loops();
  unfolded_convolutions_equal_the_loops();
  routines_for_products_equal_the_loops();
  return check_report();
}
