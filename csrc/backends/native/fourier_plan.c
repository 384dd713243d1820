/* The numbers that Fourier transforms need of a length: factors, places, turns, and the chirp where a prime factor is great.
 *
 * All are computed in double; angles are reduced as whole numbers before. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/native/fourier.h"

/* ---- lengths ---- */

enum { KINDS = 8 };
static const int radices[KINDS] = {8, 4, 2, 3, 5, 7, 11, 13};

/* The factors of n in the order of steps; what is left is 1 if n has no greater prime. */
static int64_t factors_of(int64_t n, int *factors, int *n_factors) {
  *n_factors = 0;
  for (int k = KINDS - 1; k >= 0; k--) /* vectors fill best where blocks are long: great radices last would have few */
    for (int r = radices[k]; n % r == 0 && (r > 8 || r == 7 || r == 5 || r == 3); n /= r) factors[(*n_factors)++] = r;
  int twos = 0;
  for (; n % 2 == 0; n /= 2) twos++;
  for (; twos >= 3 && twos != 4; twos -= 3) factors[(*n_factors)++] = 8;
  for (; twos >= 2; twos -= 2) factors[(*n_factors)++] = 4;
  if (twos) factors[(*n_factors)++] = 2;
  return n;
}

bool fourier_is_smooth(int64_t n) {
  int factors[FOURIER_FACTORS], count;
  return factors_of(n, factors, &count) == 1;
}

/* What a step costs for each number. */
static double price(int r) { return r == 2 ? 0.6 : r == 3 ? 0.8 : r == 4 ? 0.8 : r == 8 ? 1 : 0.2 * r; }

int64_t fourier_good_length(int64_t n) {
  int64_t best = 0;
  double least = INFINITY;
  for (int64_t five = 1; five < 2 * n; five *= 5)
    for (int64_t three = five; three < 2 * n; three *= 3) {
      int64_t m = three;
      while (m < n) m *= 2;
      int factors[FOURIER_FACTORS], count;
      if (factors_of(m, factors, &count) != 1) continue;
      double sum = 1;
      for (int k = 0; k < count; k++) sum += price(factors[k]);
      if (sum * (double)m < least) least = sum * (double)m, best = m;
    }
  return best;
}

/* ---- tables ---- */

void fourier_turn(int64_t k, int64_t n, double *pair) {
  const double angle = -6.283185307179586476925 * (double)(k % n) / (double)n;
  pair[0] = cos(angle), pair[1] = sin(angle);
}

void fourier_put(void *table, bool wide, int64_t at, const double *pair) {
  for (int j = 0; j < 2; j++) {
    if (wide) ((double *)table)[2 * at + j] = pair[j];
    else ((float *)table)[2 * at + j] = (float)pair[j];
  }
}

static void *new_table(const fourier_plan *plan, int64_t n) { return malloc((size_t)(n > 0 ? n : 1) * (plan->wide ? 16 : 8)); }

static bool fill_steps(fourier_plan *plan) {
  double pair[2];
  int64_t n = plan->length;
  for (int f = 0; f < plan->n_factors; f++) {
    const int r = plan->factors[f];
    const int64_t m = n / r;
    plan->turns[f] = new_table(plan, r), plan->twiddles[f] = new_table(plan, (r - 1) * m);
    if (!plan->turns[f] || !plan->twiddles[f]) return false;
    for (int k = 0; k < r; k++) fourier_turn(k, r, pair), fourier_put(plan->turns[f], plan->wide, k, pair);
    for (int64_t p = 0; p < m; p++)
      for (int k = 1; k < r; k++) fourier_turn(p * k, n, pair), fourier_put(plan->twiddles[f], plan->wide, p * (r - 1) + k - 1, pair);
    n = m;
  }
  return true;
}

/* Result k1 + r1 (k2 + r2 ...) is where its digits lead, block by block. */
static bool fill_places(fourier_plan *plan) {
  plan->places = malloc((size_t)(plan->length + 1) * sizeof *plan->places);
  for (int64_t k = 0; plan->places && k < plan->length; k++) {
    int64_t rest = k, block = plan->length, at = 0;
    for (int f = 0; f < plan->n_factors; f++) block /= plan->factors[f], at += rest % plan->factors[f] * block, rest /= plan->factors[f];
    plan->places[k] = at;
  }
  if (plan->places) plan->places[plan->length] = plan->length;
  return plan->places != NULL;
}

/* e^(-pi i jj/n): a factor of each number given and of each result. */
static bool fill_chirp(fourier_plan *plan) {
  double pair[2];
  plan->chirp = new_table(plan, plan->n);
  for (int64_t k = 0, square = 0; plan->chirp && k < plan->n; square = (square + 2 * k + 1) % (2 * plan->n), k++)
    fourier_turn(square, 2 * plan->n, pair), fourier_put(plan->chirp, plan->wide, k, pair);
  return plan->chirp != NULL;
}

dc_status fourier_plan_make(int64_t n, bool wide, bool by_steps, fourier_plan **out) {
  fourier_plan *plan = calloc(1, sizeof *plan);
  if (!plan) return dc_error(DC_ERR_MEMORY, "out of memory");
  const bool smooth = fourier_is_smooth(n);
  plan->wide = wide, plan->n = n, plan->length = smooth ? n : fourier_good_length(2 * n - 1);
  factors_of(plan->length, plan->factors, &plan->n_factors);
  bool filled = !by_steps || (fill_steps(plan) && fill_places(plan));
  if (filled && (smooth || fill_chirp(plan))) return *out = plan, DC_OK;
  fourier_plan_free(plan);
  return dc_error(DC_ERR_MEMORY, "out of memory");
}

void fourier_plan_free(fourier_plan *plan) {
  if (!plan) return;
  for (int f = 0; f < plan->n_factors; f++) free(plan->turns[f]), free(plan->twiddles[f]);
  free(plan->places), free(plan->chirp), free(plan->spectrum), free(plan);
}

int64_t fourier_plan_rows(const fourier_plan *plan) { return (plan->length > 2 * plan->n ? plan->length : 2 * plan->n) + 1; }
