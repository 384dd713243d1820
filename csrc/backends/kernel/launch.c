/* See launch.h. */
#include "backends/kernel/launch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

dc_launches *dc_launches_create(void) {
  dc_launches *l = calloc(1, sizeof *l);
  if (!l) abort();
  dc_pool_init(&l->pool, &l->arena, NULL); /* of symbols only the numbers are kept */
  return l;
}

void dc_launches_destroy(dc_launches *l) {
  if (l) dc_arena_free(&l->arena);
  free(l);
}

static dc_ex same_symbol(void *to, const dc_pool *from, dc_ex leaf) {
  const dc_exnode *node = dc_ex_node(from, leaf);
  assert(node->op == DC_EX_SYM);
  return dc_ex_sym(to, node->ref);
}

void dc_launch_add(dc_launches *l, const char *suffix, uint32_t threads, const dc_pool *from, dc_ex blocks, uint32_t shared_bytes) {
  while (l->pool.symbols.n < from->symbols.n)
    DC_PUSH(&l->arena, &l->pool.symbols, ((dc_symbol){.min = from->symbols.v[l->pool.symbols.n].min}));
  dc_importer importer = {.leaf = same_symbol, .context = &l->pool};
  dc_launch launch = {dc_arena_strdup(&l->arena, suffix), threads, dc_ex_import(&l->pool, from, blocks, &importer), shared_bytes, NULL};
  DC_PUSH(&l->arena, &l->launches, launch);
}

uint64_t dc_launches_hash(const dc_launches *l) {
  uint64_t hash = 0;
  if (!l) return hash;
  for (uint32_t k = 1; k < l->pool.nodes.n; k++) hash = dc_hash_bytes(hash, &l->pool.nodes.v[k].hash, sizeof l->pool.nodes.v[k].hash);
  for (uint32_t k = 0; k < l->launches.n; k++) {
    const dc_launch *x = &l->launches.v[k];
    uint32_t numbers[] = {x->threads, x->blocks, x->shared_bytes, l->checks};
    hash = dc_hash_bytes(dc_hash_bytes(hash, numbers, sizeof numbers), x->suffix, strlen(x->suffix));
  }
  return dc_hash_bytes(hash, l->symbols.v, l->symbols.n * sizeof *l->symbols.v);
}
