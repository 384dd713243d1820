/* Rows of vectors become columns: included for each instruction set by files that define NAME(x), VEC, LANES, INLINE and UNROLL, and
 * NAME(lane), vectors of int32_t.  Within 128 bits first, for which processors have quick instructions without indices. */

static const NAME(lane) NAME(lane_numbers) = {LANE_NUMBERS};
#define NUMBER NAME(lane_numbers)

/* Of each 128 bits of a and b the first two numbers, or the second two, in turns. */
#define SINGLES(a, b, second) __builtin_shuffle(a, b, NUMBER / 4 * 4 + NUMBER % 4 / 2 + NUMBER % 2 * LANES + 2 * (second))
#define PAIRS(a, b, second) __builtin_shuffle(a, b, NUMBER / 4 * 4 + NUMBER % 2 + NUMBER % 4 / 2 * LANES + 2 * (second))
/* Every other 128 bits of a, then of b. */
#define PARTS(a, b, odd) \
  __builtin_shuffle(a, b, NUMBER % 4 + NUMBER / 4 % (LANES / 8) * 8 + NUMBER / 4 / (LANES / 8) * LANES + 4 * (odd))

INLINE void NAME(turn)(VEC *s) {
  VEC t[LANES];
  UNROLL for (int k = 0; k < LANES; k += 2) t[k] = SINGLES(s[k], s[k + 1], 0), t[k + 1] = SINGLES(s[k], s[k + 1], 1);
  UNROLL for (int k = 0; k < LANES; k += 4)
    UNROLL for (int h = 0; h < 2; h++) {
      s[k + 2 * h] = PAIRS(t[k + h], t[k + h + 2], 0);
      s[k + 2 * h + 1] = PAIRS(t[k + h], t[k + h + 2], 1);
    }
  UNROLL for (int n = 4; n < LANES; n *= 2) {
    UNROLL for (int k = 0; k < LANES; k++) t[k] = s[k];
    UNROLL for (int k = 0; k < LANES / 2; k++) {
      s[k] = PARTS(t[k / 4 * 8 + k % 4], t[k / 4 * 8 + k % 4 + 4], 0);
      s[k + LANES / 2] = PARTS(t[k / 4 * 8 + k % 4], t[k / 4 * 8 + k % 4 + 4], 1);
    }
  }
}

#undef NUMBER
#undef SINGLES
#undef PAIRS
#undef PARTS
