/* Each native library's answers against plain loops in double: each operator and gradient, many attributes,
 * empty tensors, and runs from threads that did not bind.  Libraries are looked for in
 * $DCML_LIBRARIES too; where one is missing the test says so. */
#include "native_cases.h"

static void check_library(const dc_native_library *which) {
  library = which;
  const char *why = library->open(getenv("DCML_LIBRARIES"), NULL, &handle);
  if (why) {
    printf("%s is skipped: %s\n", library->name, why);
    return;
  }
  convolutions_equal_the_loops();
  products_equal_the_loops();
  meets.type = DC_BF16, meets.tolerance = 8e-3;
  meets.refusals = "this processor does not multiply bf16; a type other than f32 and f64";
  convolutions_equal_the_loops();
  products_equal_the_loops();
  memset(&meets, 0, sizeof meets);
  calls_run_in_threads_that_did_not_bind_them();
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
  CHECK_ERROR(dc_native_bind(none, g, 1, symbols, &call), DC_ERR_UNSUPPORTED, "no library runs it: onednn: not loaded");
  dc_graph_destroy(g);
  g = stamped(all, ops, "f32", "onednn");
  if (dc_node_at(g, 1)->lib.by) { /* it is there */
    CHECK_ERROR(dc_native_bind(none, g, 1, symbols, &call), DC_ERR_UNSUPPORTED, "is to be run by onednn, which is not loaded");
    CHECK_OK(dc_native_bind(all, g, 1, symbols, &call));
    dc_native_call_destroy(call);
    symbols[1] = 4; /* which is not what a window of 3 leaves of 5 */
    CHECK_ERROR(dc_native_bind(all, g, 1, symbols, &call), DC_ERR_DEVICE, "onednn accepted the operator, but not with these sizes");
    check_stamp(stamped(all, ops, "f32", NULL), "Conv@11(X, W) : onednn @first");
    check_stamp(stamped(all, ops, "f64", "onednn"), "Conv@11(X, W) : none (\"onednn: a type other than f32 and bf16; openblas: not asked for\") @first");
  }
  dc_graph_destroy(g);
  dc_natives_destroy(all);
  dc_natives_destroy(none);
  dc_ops_destroy(ops);
}

int main(void) {
  a_choice_is_stamped_with_its_reason();
  check_library(&dc_native_onednn);
  check_library(&dc_native_openblas);
  return check_report();
}
