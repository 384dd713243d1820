/* Einsum's equation: letters to extents, per operand the letters of its axes.
 *
 * einsum(equation) gives [output dims, summed dims, table]; einidx(E, t, o.., k..) the index
 * list of operand t.  The table is kept as one string a operand: "o3" is output letter 3. */
#include "ops/einsum.h"

#include <string.h>

#include "ops/inst.h"

_Static_assert(DC_MAX_RANK < 'A', "axes of an ellipsis and letters are told apart");

/* ---- equations ---- */

/* In any locale. */
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool dc_einsum_has(const dc_einsum_labels *l, char label) { return memchr(l->label, label, l->n); }

void dc_einsum_add(dc_einsum_labels *l, char label) { l->label[l->n++] = label; }

/* The label of each axis of an operand with `rank` axes. */
static dc_status read_term(const char *term, size_t length, uint32_t rank, dc_einsum_labels *out) {
  uint32_t letters = 0;
  bool dots = false;
  out->n = 0;
  for (size_t k = 0; k < length; k++) letters += is_letter(term[k]);
  for (size_t k = 0; k < length; k++) {
    if (term[k] == ' ') continue;
    if (is_letter(term[k])) {
      if (out->n == rank) return dc_error(DC_ERR_SHAPE, "the equation has more labels than the operand has dimensions");
      dc_einsum_add(out, term[k]);
    } else if (strncmp(term + k, "...", 3) == 0 && k + 3 <= length && !dots) {
      if (letters > rank) return dc_error(DC_ERR_SHAPE, "the equation has more labels than the operand has dimensions");
      for (uint32_t e = rank - letters; e > 0; e--) dc_einsum_add(out, (char)e);
      dots = true, k += 2;
    } else {
      return dc_error(DC_ERR_MODEL, "expected letters, '...', ',' and '->' in the equation");
    }
  }
  return out->n == rank ? DC_OK : dc_error(DC_ERR_SHAPE, "the equation has %u labels for %u dimensions", out->n, rank);
}

static uint32_t ellipsis_of(const dc_einsum_labels *terms, uint32_t n_terms) {
  uint32_t n = 0;
  for (uint32_t t = 0; t < n_terms; t++)
    for (uint32_t k = 0; k < terms[t].n; k++)
      if (terms[t].label[k] < 'A' && (uint32_t)terms[t].label[k] > n) n = (uint32_t)terms[t].label[k];
  return n;
}

/* Ellipsis first, then letters that occur once, in alphabetical order. */
static void implicit_output(const char *inputs, size_t length, uint32_t ellipsis, dc_einsum_labels *out) {
  for (; ellipsis; ellipsis--) dc_einsum_add(out, (char)ellipsis);
  for (int c = 'A'; c <= 'z'; c++) {
    uint32_t count = 0;
    for (size_t k = 0; k < length; k++) count += inputs[k] == c;
    if (count == 1 && is_letter((char)c)) dc_einsum_add(out, (char)c);
  }
}

/* Each label once: that also bounds their number. */
static dc_status explicit_output(const char *text, const dc_einsum_labels *terms, uint32_t n_terms, dc_einsum_labels *out) {
  bool dots = false;
  for (; *text; text++) {
    if (*text == ' ') continue;
    if (is_letter(*text)) {
      bool found = false;
      for (uint32_t t = 0; t < n_terms; t++) found |= dc_einsum_has(&terms[t], *text);
      if (!found) return dc_error(DC_ERR_MODEL, "the output label '%c' is in no input", *text);
      if (dc_einsum_has(out, *text)) return dc_error(DC_ERR_MODEL, "the output label '%c' is given twice", *text);
      dc_einsum_add(out, *text);
    } else if (strncmp(text, "...", 3) == 0 && !dots) {
      for (uint32_t e = ellipsis_of(terms, n_terms); e; e--) dc_einsum_add(out, (char)e);
      dots = true, text += 2;
    } else {
      return dc_error(DC_ERR_MODEL, "expected letters and '...' after '->' in the equation");
    }
  }
  return DC_OK;
}

dc_status dc_einsum_read(const char *equation, const uint32_t *ranks, uint32_t n, dc_einsum_labels *terms, dc_einsum_labels *output) {
  const char *arrow = strstr(equation, "->");
  const size_t length = arrow ? (size_t)(arrow - equation) : strlen(equation);
  uint32_t t = 0;
  for (size_t at = 0; at <= length; at++, t++) {
    size_t end = at;
    while (end < length && equation[end] != ',') end++;
    if (t == n) return dc_error(DC_ERR_MODEL, "the equation has other than one term for each input");
    DC_TRY(read_term(equation + at, end - at, ranks[t], &terms[t]));
    at = end;
  }
  if (t < n) return dc_error(DC_ERR_MODEL, "the equation has fewer terms than there are inputs");
  output->n = 0;
  if (arrow) return explicit_output(arrow + 2, terms, n, output);
  implicit_output(equation, length, ellipsis_of(terms, n), output);
  return DC_OK;
}

/* ---- extents ---- */

typedef struct {
  dc_einsum_labels of;
  dc_ex extent[DC_EINSUM_LABELS];
} extents;

static uint32_t place_of(const dc_einsum_labels *l, char label) {
  return (uint32_t)((const char *)memchr(l->label, label, l->n) - l->label);
}

static dc_status add_label(dc_inst *in, extents *all, char label, dc_ex extent) {
  int64_t a, b;
  if (!dc_einsum_has(&all->of, label)) {
    all->extent[all->of.n] = extent;
    dc_einsum_add(&all->of, label);
    return DC_OK;
  }
  const uint32_t k = place_of(&all->of, label);
  bool known_old = dc_ex_is_int(&in->graph->pool, all->extent[k], &a), known = dc_ex_is_int(&in->graph->pool, extent, &b);
  if (known_old && a == 1) all->extent[k] = extent;
  else if (known_old && known && a != b && b != 1)
    return dc_inst_fail(in, DC_ERR_SHAPE, "a label has extents %lld and %lld", (long long)a, (long long)b);
  return DC_OK;
}

static dc_value dims_of(dc_inst *in, const extents *all, const dc_einsum_labels *which) {
  dc_value list = dc_val_list(in, which->n);
  for (uint32_t k = 0; k < which->n; k++) list.items[k] = dc_val_ex(all->extent[place_of(&all->of, which->label[k])]);
  return list;
}

static dc_value text_of(dc_inst *in, const dc_einsum_labels *l) {
  return (dc_value){.kind = VAL_STR, .str = dc_arena_copy(in->arena, l->label, l->n + 1), .n = l->n};
}

static uint32_t count_inputs(dc_inst *in) {
  uint32_t n = 0;
  while (dc_inst_tensor(in, in->row->in_sig[0].name, (int32_t)n)) n++;
  return n;
}

dc_status dc_einsum(dc_inst *in, const char *equation, dc_value *out) {
  const uint32_t n = count_inputs(in);
  extents all = {.of.n = 0};
  dc_einsum_labels *terms = DC_NEW_ARRAY(in->arena, dc_einsum_labels, n + 1), output = {.n = 0}, summed = {.n = 0};
  uint32_t *ranks = DC_NEW_ARRAY(in->arena, uint32_t, n + 1);
  for (uint32_t t = 0; t < n; t++) ranks[t] = dc_inst_tensor(in, in->row->in_sig[0].name, (int32_t)t)->rank;
  dc_status status = dc_einsum_read(equation, ranks, n, terms, &output);
  if (status) return dc_inst_locate(in, status);
  *out = dc_val_list(in, 5);
  out->items[2] = dc_val_list(in, n);
  for (uint32_t t = 0; t < n; t++) {
    const dc_tensor *x = dc_inst_tensor(in, in->row->in_sig[0].name, (int32_t)t);
    for (uint32_t d = 0; d < x->rank; d++) DC_TRY(add_label(in, &all, terms[t].label[d], x->dims[d]));
    out->items[2].items[t] = text_of(in, &terms[t]);
  }
  for (uint32_t k = 0; k < all.of.n; k++)
    if (!dc_einsum_has(&output, all.of.label[k])) dc_einsum_add(&summed, all.of.label[k]);
  out->items[0] = dims_of(in, &all, &output), out->items[1] = dims_of(in, &all, &summed);
  out->items[3] = text_of(in, &output), out->items[4] = text_of(in, &summed);
  return DC_OK;
}

dc_status dc_einsum_index(dc_inst *in, const dc_value *a, dc_value *out) {
  int64_t t, one;
  if (a[0].kind != VAL_LIST || a[0].n != 5 || !dc_val_is_int(in, &a[1], &t) || t < 0 || t >= a[0].items[2].n)
    return dc_inst_fail(in, DC_ERR_VALUE, "einidx takes einsum's result and an operand");
  const dc_value *axes = &a[0].items[2].items[t], *output = &a[0].items[3], *summed = &a[0].items[4];
  const dc_tensor *tensor = dc_inst_tensor(in, in->row->in_sig[0].name, (int32_t)t);
  *out = dc_val_list(in, axes->n);
  for (uint32_t d = 0; d < axes->n; d++) {
    const char *o = memchr(output->str, axes->str[d], output->n), *s = memchr(summed->str, axes->str[d], summed->n);
    if (dc_ex_is_int(&in->graph->pool, tensor->dims[d], &one) && one == 1) out->items[d] = dc_val_int(in, 0);
    else if (o) out->items[d] = a[2].items[o - output->str];
    else out->items[d] = a[3].items[s - summed->str];
  }
  return DC_OK;
}
