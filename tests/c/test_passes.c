/* Passes: files of tests/ir, a folder per pass.  A file is
 *     pass: NAME NAME ...        (passes in small letters, transformations with a capital)
 *     graph text
 *     ---
 *     text of the graph after the passes
 * What a graph without library nodes computes must not change by a pass: the interpreter runs it
 * before and after.  DCML_ACCEPT=1 writes what was got into the file instead of comparing. */
#include <dirent.h>

#include "graph_run.h"
#include "passes/passes.h"

static dc_ops *ops;

static char *read_text(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  char *text = calloc(1, 1 << 20);
  size_t n = fread(text, 1, (1 << 20) - 1, file);
  text[n] = 0;
  fclose(file);
  return text;
}

static bool only_maps(const dc_graph *g) {
  for (uint32_t s = 0; s < g->states.n; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++)
      if (dc_node_at(g, g->states.v[s].scope.v[k])->kind == DC_NODE_LIBRARY) return false;
  return true;
}

static void run_passes(dc_graph *g, char *names, const char *path) {
  for (char *save = NULL, *name = strtok_r(names, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
    dc_graph *before = dc_graph_clone(g);
    uint32_t count = 0;
    if (name[0] >= 'A' && name[0] <= 'Z') {
      CHECK_OK(dc_transform_apply(ops, g, name, NULL, 0, &count));
      CHECK(count > 0);
    } else {
      CHECK_OK(dc_pass_run(ops, g, name));
    }
    if (only_maps(before)) check_same_results(before, g, path);
    dc_graph_destroy(before);
  }
}

static void accept(const char *path, const char *head, const char *body, const char *got) {
  FILE *file = fopen(path, "wb");
  if (!file) return;
  fprintf(file, "pass: %s\n%s---\n%s", head, body, got);
  fclose(file);
}

static void check_file(const char *path) {
  char *text = read_text(path), *body = text ? strchr(text, '\n') : NULL, *wanted = text ? strstr(text, "\n---\n") : NULL;
  bool good = text && strncmp(text, "pass: ", 6) == 0 && body && wanted;
  CHECK(good);
  if (!good) return;
  *body++ = 0;
  wanted[1] = 0;
  wanted += 5;
  char *names = strdup(text + 6);
  dc_graph *g = NULL;
  int failed = check_failed;
  CHECK_OK(dc_graph_parse(body, &g));
  if (g) {
    run_passes(g, names, path);
    dc_text out = {0};
    dc_graph_print(g, &out);
    if (getenv("DCML_ACCEPT")) accept(path, text + 6, body, out.s);
    else CHECK_TEXT(out.s, wanted);
    dc_text_free(&out);
  }
  if (check_failed > failed) printf("in %s\n", path);
  dc_graph_destroy(g);
  free(names);
  free(text);
}

static void unknown_names_are_listed(void) {
  dc_graph *g = dc_graph_create("g");
  uint32_t count;
  CHECK_ERROR(dc_pass_run(ops, g, "fly"), DC_ERR_VALUE, "loops");
  CHECK_ERROR(dc_transform_apply(ops, g, "Fly", NULL, 0, &count), DC_ERR_VALUE, "TaskletFusion");
  dc_graph_destroy(g);
}

static void files_of_each_pass_match(void) {
  static const char *const folders[] = {"fuse", "loops", "simplify", "transforms"};
  for (size_t k = 0; k < sizeof folders / sizeof *folders; k++) {
    char folder[256], path[1024];
    snprintf(folder, sizeof folder, "tests/ir/%s", folders[k]);
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
      size_t length = strlen(entries[i]->d_name);
      snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
      if (length > 4 && strcmp(entries[i]->d_name + length - 4, ".txt") == 0) check_file(path);
      free(entries[i]);
    }
    free(entries);
  }
}

int main(int argc, char **argv) {
  CHECK_OK(dc_ops_create(&ops));
  if (!ops) return 1;
  for (int k = 1; k < argc; k++) check_file(argv[k]);
  if (argc == 1) {
    unknown_names_are_listed();
    files_of_each_pass_match();
  }
  dc_ops_destroy(ops);
  return check_report();
}
