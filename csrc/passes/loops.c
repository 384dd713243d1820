/* Loops. */
#include "passes/passes.h"
dc_status dc_pass_loops(dc_graph *graph) { (void)graph; return DC_OK; }
