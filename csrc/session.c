/* Sessions: what is shared by all functions of a process. */
#include <stdlib.h>

#include "backends/cuda/device.h"
#include "backends/target.h"
#include "backends/workspace.h"
#include "dcml.h"

dc_status dc_session_create(const char *library_folder, const char *spare_compiler, dc_session *out) {
  *out = (dc_session){0};
  dc_target_cpu.machine(&out->machine);
  dc_status status = dc_ops_create(&out->ops);
  if (!status) status = dc_natives_create(dc_target_cpu.natives, getenv("DCML_NATIVE"), library_folder, NULL, &out->natives);
  if (!status) status = dc_jit_create(dc_target_cpu.language, dc_target_cpu.toolchain, NULL, NULL, spare_compiler, &out->jit);
  if (!status && !(out->workspace = dc_workspace_create(dc_target_cpu.memory))) status = dc_error(DC_ERR_MEMORY, "out of memory");
  if (!status && !(out->cuda = dc_cuda_create(library_folder))) status = dc_error(DC_ERR_MEMORY, "out of memory");
  if (status) dc_session_destroy(out);
  return status;
}

void dc_session_destroy(dc_session *session) {
  dc_jit_destroy(session->jit);
  dc_natives_destroy(session->natives);
  dc_ops_destroy(session->ops);
  dc_workspace_destroy(session->workspace);
  dc_cuda_destroy(session->cuda);
  *session = (dc_session){0};
}
