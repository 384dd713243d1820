/* The first of a line in order, for one form of entries; select.c includes this once for each.
 *
 * ENTRY is a key with a place, BEFORE(a, b) says which comes first where keys differ or, if not, places; DIGIT(v, b) is byte b of
 * the key, PLACE(v) where the element was, NAME(x) the names of this form. */

/* heap[0] comes last of all; what is below place `at` is in order already. */
static void NAME(sink)(ENTRY *heap, int64_t n, int64_t at) {
  ENTRY moved = heap[at];
  for (int64_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && BEFORE(heap[child], heap[child + 1])) child++;
    if (!BEFORE(moved, heap[child])) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
}

static ENTRY *NAME(keep_few)(int64_t n, int64_t most, const ENTRY *v, ENTRY *heap) {
  memcpy(heap, v, (size_t)most * sizeof *v);
  for (int64_t k = most / 2; k-- > 0;) NAME(sink)(heap, most, k);
  for (int64_t k = most; k < n; k++) {
    if (!BEFORE(v[k], heap[0])) continue; /* of equals the first is kept */
    heap[0] = v[k];
    NAME(sink)(heap, most, 0);
  }
  for (int64_t k = most - 1; k > 0; k--) {
    ENTRY last = heap[0];
    heap[0] = heap[k], heap[k] = last;
    NAME(sink)(heap, k, 0);
  }
  return heap;
}

/* Each goes where as many come before it: no branches, which nobody could foresee. */
static ENTRY *NAME(rank_all)(int64_t n, const ENTRY *v, ENTRY *other) {
  for (int64_t k = 0; k < n; k++) {
    const ENTRY x = v[k];
    int64_t before = 0;
    for (int64_t j = 0; j < n; j++) before += BEFORE(v[j], x);
    other[before] = x;
  }
  return other;
}

static void NAME(count)(const ENTRY *v, int64_t from, int64_t to, int b, int64_t *count) {
  memset(count, 0, DIGITS * sizeof *count);
  for (int64_t k = from; k < to; k++) count[DIGIT(v[k], b)]++;
}

static void NAME(move)(const ENTRY *v, int64_t from, int64_t to, int b, int64_t *at, ENTRY *other) {
  for (int64_t k = from; k < to; k++) other[at[DIGIT(v[k], b)]++] = v[k];
}

/* By the lowest byte, then the next, each time keeping the order of equals; where all have one byte there is nothing to do. */
static ENTRY *NAME(sort_all)(int64_t n, int bytes, ENTRY *v, ENTRY *other, int parts) {
  if (n <= SHORT) return NAME(rank_all)(n, v, other);
  for (int b = 0; b < bytes; b++) {
    int64_t at[PARTS][DIGITS];
    EACH_PART(NAME(count)(v, from, to, b, at[part]))
    if (are_same(at, parts, DIGIT(v[0], b), n)) continue;
    begin_each(at, parts);
    EACH_PART(NAME(move)(v, from, to, b, at[part], other))
    ENTRY *sorted = other;
    other = v, v = sorted;
  }
  return v;
}

/* The first `most` of n, in any order but that of equals: by the highest byte some are sure, and those that share the byte of the
 * last one are told apart by the next. */
static void NAME(find_first)(int64_t n, int64_t most, int bytes, ENTRY *v, ENTRY *found) {
  int64_t sure = 0;
  for (int b = bytes - 1; b >= 0 && sure + n > most; b--) {
    int64_t count[DIGITS], before = sure, same = 0, first = 0;
    NAME(count)(v, 0, n, b, count);
    while (before + count[first] < most) before += count[first++];
    for (int64_t k = 0; k < n; k++) {
      const ENTRY x = v[k];
      const int64_t digit = DIGIT(x, b);
      found[sure] = x, sure += digit < first;
      v[same] = x, same += digit == first;
    }
    n = same;
  }
  memcpy(found + sure, v, (size_t)(most - sure) * sizeof *v);
}

static ENTRY *NAME(first)(int64_t n, int64_t most, int bytes, ENTRY *v, ENTRY *other, int parts) {
  if (most < n / FEW) return NAME(keep_few)(n, most, v, other);
  if (n <= SHORT || most > n / 4 * 3) return NAME(sort_all)(n, bytes, v, other, parts);
  NAME(find_first)(n, most, bytes, v, other);
  return NAME(sort_all)(most, bytes, other, v, 1);
}

/* The element in place `at` of the order: byte by byte those stay that share the bytes of it. */
static ENTRY NAME(at_place)(int64_t n, int64_t at, int bytes, ENTRY *v, ENTRY *other) {
  for (int b = bytes - 1; b >= 0 && n > SHORT; b--) {
    int64_t count[DIGITS], same = 0, digit = 0;
    NAME(count)(v, 0, n, b, count);
    while (count[digit] <= at) at -= count[digit++];
    for (int64_t k = 0; k < n; k++) {
      const ENTRY x = v[k];
      v[same] = x, same += (int64_t)DIGIT(x, b) == digit;
    }
    n = same;
  }
  return n > SHORT ? v[at] : NAME(rank_all)(n, v, other)[at];
}

static void NAME(write_places)(const selection *s, const ENTRY *v, int64_t from, int64_t to, int64_t *places) {
  for (int64_t k = from; k < to; k++) places[k * s->inner] = PLACE(v[k]);
}

static void NAME(write_values)(const selection *s, const ENTRY *v, int64_t from, int64_t to, const void *x, void *y) {
  switch (dc_dtype_bytes(s->type)) {
    case 1: COPY(uint8_t)
    case 2: COPY(uint16_t)
    case 4: COPY(uint32_t)
    default: COPY(uint64_t)
  }
}

/* Line's elements from x on, whose keys have so many bytes; `at` is the place of the first that is chosen. */
static void NAME(select_line)(const selection *s, void *const *buffers, const void *x, int64_t at, int bytes, void *scratch) {
  const int size = dc_dtype_bytes(s->type), parts = s->parts;
  ENTRY *v = scratch;
  if (s->alone) {
    ((int64_t *)buffers[s->indices])[at] = PLACE(NAME(at_place)(s->n, s->k - 1, bytes, v, v + s->n));
    return;
  }
  v = NAME(first)(s->n, s->k, bytes, v, v + s->n, parts);
  const int64_t n = s->k;
  if (s->indices >= 0) {
    EACH_PART(NAME(write_places)(s, v, from, to, (int64_t *)buffers[s->indices] + at))
  }
  if (s->values >= 0) {
    EACH_PART(NAME(write_values)(s, v, from, to, x, (char *)buffers[s->values] + at * size))
  }
}
#undef ENTRY
#undef NAME
#undef BEFORE
#undef DIGIT
#undef PLACE
