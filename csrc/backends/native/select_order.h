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

static ENTRY *NAME(insert_all)(int64_t n, ENTRY *v) {
  for (int64_t k = 1; k < n; k++) {
    ENTRY x = v[k];
    int64_t at = k;
    for (; at && BEFORE(x, v[at - 1]); at--) v[at] = v[at - 1];
    v[at] = x;
  }
  return v;
}

/* By the lowest byte, then the next, each time keeping the order of equals; where all have one byte there is nothing to do. */
static ENTRY *NAME(sort_all)(int64_t n, int bytes, ENTRY *v, ENTRY *other) {
  if (n <= SHORT) return NAME(insert_all)(n, v);
  for (int b = 0; b < bytes; b++) {
    int64_t at[256] = {0}, sum = 0;
    for (int64_t k = 0; k < n; k++) at[DIGIT(v[k], b)]++;
    if (at[DIGIT(v[0], b)] == n) continue;
    for (int d = 0; d < 256; d++) {
      int64_t count = at[d];
      at[d] = sum, sum += count;
    }
    for (int64_t k = 0; k < n; k++) other[at[DIGIT(v[k], b)]++] = v[k];
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
    int64_t count[256] = {0}, before = sure, same = 0, first = 0;
    for (int64_t k = 0; k < n; k++) count[DIGIT(v[k], b)]++;
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

static ENTRY *NAME(first)(int64_t n, int64_t most, int bytes, ENTRY *v, ENTRY *other) {
  if (most < n / FEW) return NAME(keep_few)(n, most, v, other);
  if (n <= SHORT || most > n / 4 * 3) return NAME(sort_all)(n, bytes, v, other);
  NAME(find_first)(n, most, bytes, v, other);
  return NAME(sort_all)(most, bytes, other, v);
}

/* The element in place `at` of the order: byte by byte those stay that share the bytes of it. */
static ENTRY NAME(at_place)(int64_t n, int64_t at, int bytes, ENTRY *v) {
  for (int b = bytes - 1; b >= 0 && n > SHORT; b--) {
    int64_t count[256] = {0}, same = 0, digit = 0;
    for (int64_t k = 0; k < n; k++) count[DIGIT(v[k], b)]++;
    while (count[digit] <= at) at -= count[digit++];
    for (int64_t k = 0; k < n; k++) {
      const ENTRY x = v[k];
      v[same] = x, same += (int64_t)DIGIT(x, b) == digit;
    }
    n = same;
  }
  return n > SHORT ? v[at] : NAME(insert_all)(n, v)[at];
}

/* Line's elements from x on, `at` the place of the first that is chosen. */
static void NAME(select_line)(const selection *s, void *const *buffers, const void *x, int64_t at, void *scratch) {
  const int size = dc_dtype_bytes(s->type);
  ENTRY *v = scratch;
  read_keys(s, x, scratch);
  if (s->alone) {
    ((int64_t *)buffers[s->indices])[at] = PLACE(NAME(at_place)(s->n, s->k - 1, size, v));
    return;
  }
  v = NAME(first)(s->n, s->k, size, v, v + s->n);
  if (s->indices >= 0)
    for (int64_t k = 0; k < s->k; k++) ((int64_t *)buffers[s->indices])[at + k * s->inner] = PLACE(v[k]);
  if (s->values < 0) return;
  void *y = buffers[s->values];
  switch (size) {
    case 1: COPY(uint8_t)
    case 2: COPY(uint16_t)
    case 4: COPY(uint32_t)
    default: COPY(uint64_t)
  }
}
#undef ENTRY
#undef NAME
#undef BEFORE
#undef DIGIT
#undef PLACE
