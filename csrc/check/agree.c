/* See agree.h. */
#include "check/agree.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ir/flow.h"
#include "passes/passes.h"

enum { SECONDS_APART = 10 };

static bool is_pass(const char *what) { return !strchr(what, ' '); }

dc_run_kind dc_check_kind(const char *what) {
  return is_pass(what) || strcmp(what, DC_FLAT_VIEW) == 0 ? DC_RUN_INTERPRETED
         : strcmp(what, DC_PROGRAM_WHOLE) == 0            ? DC_RUN_WHOLE
                                                          : DC_RUN_PROGRAM;
}

dc_backend_kind dc_check_backend(const char *what) {
  return strcmp(what, DC_PROGRAM_COMPILED) == 0 || strcmp(what, DC_PROGRAM_WHOLE) == 0 ? DC_BACKEND_CPU : DC_BACKEND_INTERP;
}

dc_status dc_check_rebuild(dc_graph *graph) {
  for (uint32_t s = 0; s < graph->states.n; s++) {
    dc_flow flow = {0};
    dc_status status = dc_flow_derive(&flow, graph, s, dc_flow_numbered);
    dc_flow_touch(&flow, 0);
    if (!status) status = dc_flow_build(&flow, graph, s, dc_flow_numbered);
    dc_flow_free(&flow);
    DC_TRY(status);
  }
  return dc_graph_verify(graph);
}

static void put_sizes(const dc_graph *graph, const int64_t *symbols, dc_text *out) {
  for (dc_sym s = 1; s < graph->pool.symbols.n; s++) {
    const char *name = dc_name_text(&graph->names, graph->pool.symbols.v[s].name);
    dc_text_printf(out, "%s%s = %lld", s > 1 ? ", " : " (", name, (long long)symbols[s]);
  }
  if (graph->pool.symbols.n > 1) dc_text_puts(out, ")");
}

static dc_verdict try_sizes(const dc_check *check, const dc_graph *before, const dc_graph *after, const char *what, uint32_t set,
                            dc_text *why) {
  dc_values wanted = {0}, got = {0};
  dc_difference difference;
  int64_t symbols[DC_MAX_SIZES] = {0};
  dc_contents contents = {.seed = set};
  if (!dc_sizes_choose(before, set, check->sizes, check->n_sizes, symbols, NULL)) return DC_USELESS;
  dc_status status = dc_values_run(check->target, before, DC_RUN_INTERPRETED, symbols, contents, &wanted);
  dc_verdict verdict = status || dc_values_have_nan(&wanted) ? DC_USELESS : DC_AGREES;
  if (!verdict) {
    dc_target chosen = *check->target;
    chosen.backend = dc_check_backend(what);
    status = dc_values_run(&chosen, after, dc_check_kind(what), symbols, contents, &got);
    verdict = status ? DC_REFUSES : dc_values_same(&wanted, &got, check->tolerance, &difference) ? DC_AGREES : DC_DIFFERS;
    if (status) dc_text_puts(why, dc_status_text(status));
    if (verdict == DC_DIFFERS) dc_difference_print(&difference, why);
    if (verdict) put_sizes(before, symbols, why);
  }
  dc_status_free(status);
  dc_values_free(&wanted), dc_values_free(&got);
  return verdict;
}

static dc_verdict try_kernels(const dc_graph *graph, dc_text *why) {
  dc_status useless = dc_graph_verify(graph), status = useless ? DC_OK : dc_check_kernels(graph);
  dc_verdict verdict = useless ? DC_USELESS : status ? DC_REFUSES : DC_AGREES;
  if (status) dc_text_puts(why, dc_status_text(status));
  dc_status_free(useless), dc_status_free(status);
  return verdict;
}

dc_verdict dc_check_try(const dc_check *check, const dc_graph *graph, const char *what, dc_text *why) {
  if (strcmp(what, DC_KERNEL_TEXTS) == 0) return try_kernels(graph, why);
  dc_graph *after = dc_graph_clone(graph);
  dc_verdict verdict = DC_USELESS;
  dc_status status = dc_graph_verify(graph);
  bool rebuilt = strcmp(what, DC_FLAT_VIEW) == 0;
  if (!status && (is_pass(what) || rebuilt)) {
    dc_transform_tools tools = {.ops = check->target->ops, .interpret = dc_interp_node};
    status = rebuilt ? dc_check_rebuild(after) : dc_step_run(&tools, after, what);
    if (status) dc_text_puts(why, dc_status_text(status)), verdict = DC_REFUSES;
  }
  const uint32_t n_sets = check->n_sets ? check->n_sets : DC_SIZE_SETS;
  for (uint32_t set = 0; set < n_sets && !status && verdict != DC_DIFFERS && verdict != DC_REFUSES; set++) {
    dc_verdict now = try_sizes(check, graph, after, what, set, why);
    if (now != DC_USELESS) verdict = now;
  }
  dc_status_free(status);
  dc_graph_destroy(after);
  return verdict;
}

dc_verdict dc_check_try_apart(const dc_check *check, const dc_graph *graph, const char *what) {
  int state;
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    dc_text why = {0};
    for (int k = 1; k < 32; k++) signal(k, SIG_DFL);
    if (!freopen("/dev/null", "w", stderr)) _exit(DC_USELESS);
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = SECONDS_APART}}, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {.tv_sec = 10 * SECONDS_APART}}, NULL); /* waiting takes no processor time */
    _exit(dc_check_try(check, graph, what, &why));
  }
  if (child < 0 || waitpid(child, &state, 0) != child) return DC_USELESS;
  return WIFEXITED(state) && WEXITSTATUS(state) <= DC_USELESS ? (dc_verdict)WEXITSTATUS(state) : DC_CRASHES;
}
