/* Einsum's equation: letters to extents, per operand the letters of its axes.
 *
 * einsum(equation) gives [output dims, summed dims, table]; einidx(E, t, o.., k..) the index
 * list of operand t.  The table is kept as one string a operand: "o3" is output letter 3. */
#include <string.h>

#include "ops/inst.h"

enum { LETTERS = 52, MAX_LABELS = DC_MAX_RANK + LETTERS }; /* all that there are: none is ever one too many */
_Static_assert(DC_MAX_RANK < 'A', "axes of an ellipsis and letters are told apart");

typedef struct {
  char label[MAX_LABELS]; /* letters; the axes of an ellipsis are the numbers 1.. counted from the right */
  dc_ex extent[MAX_LABELS];
  uint32_t n;
} labels;

/* In any locale. */
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static int find_label(const labels *l, char c) {
  for (uint32_t k = 0; k < l->n; k++)
    if (l->label[k] == c) return (int)k;
  return -1;
}

static dc_status add_label(dc_inst *in, labels *l, char c, dc_ex extent) {
  int k = find_label(l, c);
  int64_t a, b;
  if (k < 0) {
    l->label[l->n] = c, l->extent[l->n++] = extent;
    return DC_OK;
  }
  bool known_old = dc_ex_is_int(&in->graph->pool, l->extent[k], &a), known = dc_ex_is_int(&in->graph->pool, extent, &b);
  if (known_old && a == 1) l->extent[k] = extent;
  else if (known_old && known && a != b && b != 1)
    return dc_inst_fail(in, DC_ERR_SHAPE, "a label has extents %lld and %lld", (long long)a, (long long)b);
  return DC_OK;
}

/* The label of each axis of an operand with `rank` axes. */
static dc_status axis_labels(dc_inst *in, const char *term, size_t length, uint32_t rank, char *out) {
  uint32_t letters = 0, n = 0;
  bool dots = false;
  for (size_t k = 0; k < length; k++) letters += is_letter(term[k]);
  for (size_t k = 0; k < length; k++) {
    if (term[k] == ' ') continue;
    if (is_letter(term[k])) {
      if (n < rank) out[n++] = term[k];
      else return dc_inst_fail(in, DC_ERR_SHAPE, "the equation has more labels than the operand has dimensions");
    } else if (strncmp(term + k, "...", 3) == 0 && k + 3 <= length && !dots) {
      if (letters > rank) return dc_inst_fail(in, DC_ERR_SHAPE, "the equation has more labels than the operand has dimensions");
      for (uint32_t e = rank - letters; e > 0; e--) out[n++] = (char)e;
      dots = true, k += 2;
    } else {
      return dc_inst_fail(in, DC_ERR_MODEL, "expected letters, '...', ',' and '->' in the equation");
    }
  }
  return n == rank ? DC_OK : dc_inst_fail(in, DC_ERR_SHAPE, "the equation has %u labels for %u dimensions", n, rank);
}

/* Implicit output: ellipsis first, then letters that occur once, in alphabetical order. */
static uint32_t ellipsis_of(const labels *all) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < all->n; k++)
    if (all->label[k] < 'A' && (uint32_t)all->label[k] > n) n = (uint32_t)all->label[k];
  return n;
}

static uint32_t implicit_output(const labels *all, const char *inputs, size_t length, char *out) {
  uint32_t n = 0;
  for (uint32_t ellipsis = ellipsis_of(all); ellipsis; ellipsis--) out[n++] = (char)ellipsis;
  for (int c = 'A'; c <= 'z'; c++) {
    uint32_t count = 0;
    for (size_t k = 0; k < length; k++) count += inputs[k] == c;
    if (count == 1 && is_letter((char)c)) out[n++] = (char)c;
  }
  return n;
}

/* Each label once: that also bounds their number. */
static dc_status explicit_output(dc_inst *in, const labels *all, const char *text, char *out, uint32_t *n) {
  bool dots = false;
  for (; *text; text++) {
    if (*text == ' ') continue;
    if (is_letter(*text)) {
      if (find_label(all, *text) < 0) return dc_inst_fail(in, DC_ERR_MODEL, "the output label '%c' is in no input", *text);
      if (memchr(out, *text, *n)) return dc_inst_fail(in, DC_ERR_MODEL, "the output label '%c' is given twice", *text);
      out[(*n)++] = *text;
    } else if (strncmp(text, "...", 3) == 0 && !dots) {
      for (uint32_t e = ellipsis_of(all); e; e--) out[(*n)++] = (char)e;
      dots = true, text += 2;
    } else {
      return dc_inst_fail(in, DC_ERR_MODEL, "expected letters and '...' after '->' in the equation");
    }
  }
  return DC_OK;
}

static dc_value dims_of(dc_inst *in, const labels *all, const char *which, uint32_t n) {
  dc_value list = dc_val_list(in, n);
  for (uint32_t k = 0; k < n; k++) list.items[k] = dc_val_ex(all->extent[find_label(all, which[k])]);
  return list;
}

dc_status dc_einsum(dc_inst *in, const char *equation, dc_value *out) {
  labels all = {.n = 0};
  const char *arrow = strstr(equation, "->");
  size_t length = arrow ? (size_t)(arrow - equation) : strlen(equation);
  char output[MAX_LABELS + 1] = {0}, summed[MAX_LABELS + 1] = {0};
  uint32_t n_out = 0, n_sum = 0, n_terms = 1;
  for (size_t k = 0; k < length; k++) n_terms += equation[k] == ',';
  dc_value terms = dc_val_list(in, n_terms);
  terms.n = 0;
  for (size_t at = 0; at <= length; at++) {
    size_t end = at;
    while (end < length && equation[end] != ',') end++;
    dc_tensor *t = dc_inst_tensor(in, in->row->in_sig[0].name, (int32_t)terms.n);
    if (!t) return dc_inst_fail(in, DC_ERR_MODEL, "the equation has other than one term for each input");
    char *axes = DC_NEW_ARRAY(in->arena, char, t->rank + 1);
    DC_TRY(axis_labels(in, equation + at, end - at, t->rank, axes));
    for (uint32_t d = 0; d < t->rank; d++) DC_TRY(add_label(in, &all, axes[d], t->dims[d]));
    terms.items[terms.n++] = (dc_value){.kind = VAL_STR, .str = axes, .n = t->rank};
    at = end;
  }
  if (dc_inst_tensor(in, in->row->in_sig[0].name, (int32_t)terms.n))
    return dc_inst_fail(in, DC_ERR_MODEL, "the equation has fewer terms than there are inputs");
  if (arrow) DC_TRY(explicit_output(in, &all, arrow + 2, output, &n_out));
  else n_out = implicit_output(&all, equation, length, output);
  for (uint32_t k = 0; k < all.n; k++)
    if (!memchr(output, all.label[k], n_out)) summed[n_sum++] = all.label[k];
  *out = dc_val_list(in, 5);
  out->items[0] = dims_of(in, &all, output, n_out);
  out->items[1] = dims_of(in, &all, summed, n_sum);
  out->items[2] = terms;
  out->items[3] = (dc_value){.kind = VAL_STR, .str = dc_arena_copy(in->arena, output, sizeof output), .n = n_out};
  out->items[4] = (dc_value){.kind = VAL_STR, .str = dc_arena_copy(in->arena, summed, sizeof summed), .n = n_sum};
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
