/* NVRTC's functions over the host's C++ compiler: the "cubin" is a shared object. */
#include "driver.h"

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <set>
#include <spawn.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace {

struct Program {
  std::string text, name, log, image;
};

std::set<Program *> programs;

enum { NVRTC_INVALID_INPUT = 3, NVRTC_INVALID_PROGRAM = 4, NVRTC_INVALID_OPTION = 5, NVRTC_COMPILATION = 6 };

std::string read_file(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

bool write_file(const std::string &path, const std::string &text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  return (bool)out.flush();
}

/* Names of `__global__` functions, each with the first argument of its `__launch_bounds__`. */
std::vector<std::pair<std::string, std::string>> kernels_of(const std::string &text) {
  std::vector<std::pair<std::string, std::string>> found;
  const std::string word = "__global__";
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    std::string bounds = "0", name;
    for (at += word.size(); at < text.size();) {
      if (isalnum((unsigned char)text[at]) || text[at] == '_') {
        size_t start = at;
        while (at < text.size() && (isalnum((unsigned char)text[at]) || text[at] == '_')) at++;
        name = text.substr(start, at - start);
      } else if (text[at] == '(') {
        if (name != "__launch_bounds__") break;
        size_t start = ++at;
        for (int depth = 1; at < text.size() && depth; at++) depth += (text[at] == '(') - (text[at] == ')');
        bounds = text.substr(start, at - 1 - start);
        bounds = bounds.substr(0, bounds.find(','));
      } else if (text[at] == ';' || text[at] == '{') {
        name.clear();
        break;
      } else {
        at++;
      }
    }
    if (!name.empty()) found.emplace_back(name, bounds);
  }
  return found;
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* `extern __shared__ float4 row[];` as a pointer to the memory whose size the launch says; what is no such line stays as it is. */
std::string with_dynamic_memory(const std::string &text) {
  std::string out;
  size_t done = 0;
  for (size_t at = text.find("extern"); at != std::string::npos; at = text.find("extern", at + 1)) {
    size_t word = at + 6, end = text.find(';', at);
    while (word < text.size() && is_space(text[word])) word++;
    if (end == std::string::npos || text.compare(word, 10, "__shared__")) continue;
    std::string type = text.substr(word + 10, text.rfind('[', end) - word - 10), name; /* `float4 row`, perhaps after an alignment */
    for (const char *alignment : {"__align__", "alignas"})
      if (type.find(alignment) != std::string::npos) type = type.substr(type.find(')') + 1);
    while (!type.empty() && is_space(type.back())) type.pop_back();
    while (!type.empty() && !is_space(type.back())) name.insert(name.begin(), type.back()), type.pop_back();
    out += text.substr(done, at - done) + "static " + type + " *const " + name + " __attribute__((unused)) = (" + type + " *)fake_dynamic_shared";
    done = end;
  }
  return out + text.substr(done);
}

bool is_known(const std::string &option) {
  static const std::set<std::string> names = {"std", "fmad", "use_fast_math", "ftz", "prec-div", "prec-sqrt", "default-device",
                                              "device-as-default-execution-space", "lineinfo", "generate-line-info", "restrict",
                                              "extra-device-vectorization", "diag-suppress", "disable-warnings", "w", "split-compile",
                                              "minimal", "maxrregcount", "dopt", "no-cache", "ptxas-options"};
  size_t from = option.find_first_not_of('-');
  return from != std::string::npos && from > 0 && names.count(option.substr(from, option.find('=') - from));
}

std::string host_text(const Program *p, int arch) {
  std::string text = "#include \"" FAKE_FOLDER "/cuda_on_host.h\"\n#line 1 \"" + p->name + "\"\n" + with_dynamic_memory(p->text);
  text += "\nextern \"C\" { extern const int fake_arch; const int fake_arch = " + std::to_string(arch) + "; }\n";
  for (auto &kernel : kernels_of(p->text)) text += "FAKE_KERNEL(" + kernel.first + ", " + kernel.second + ")\n";
  return text;
}

int run(const std::vector<std::string> &command, const std::string &messages) {
  std::vector<char *> argv;
  for (const std::string &word : command) argv.push_back(const_cast<char *>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 2, messages.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  pid_t child;
  int status = 0, error = posix_spawnp(&child, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error) return error;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return errno;
  return status;
}

bool compile(Program *p, int arch, const std::vector<std::string> &defines) {
  const char *cxx = getenv("FAKE_CUDA_CXX"), *folder = getenv("TMPDIR");
  const char *level = getenv("FAKE_CUDA_OPTIMIZE");
  std::vector<std::string> command = {cxx ? cxx : "g++", level ? level : "-O1", "-std=c++17", "-w", "-fPIC", "-shared", "-fno-exceptions", "-fno-rtti",
                                      "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-fno-math-errno", "-nostdinc"};
  command.insert(command.end(), defines.begin(), defines.end());
  std::string text = host_text(p, arch);
  std::string scratch = std::string(folder ? folder : "/tmp") + "/fake_nvrtc_XXXXXX";
  if (!mkdtemp(&scratch[0])) return p->log = "no temporary folder", false;
  std::string source = scratch + "/kernels.cpp", object = scratch + "/kernels.so", messages = scratch + "/messages";
  write_file(source, text);
  command.insert(command.end(), {"-o", object, source, "-lm"});
  bool good = run(command, messages) == 0;
  p->log = read_file(messages);
  if (good) p->image = read_file(object);
  for (const std::string &path : {source, object, messages}) unlink(path.c_str());
  rmdir(scratch.c_str());
  return good && !p->image.empty();
}

} // namespace

API int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, 0; }
static const int architectures[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
API int nvrtcGetNumSupportedArchs(int *n) { return *n = sizeof architectures / sizeof *architectures, 0; }
API int nvrtcGetSupportedArchs(int *archs) { return memcpy(archs, architectures, sizeof architectures), 0; }

API const char *nvrtcGetErrorString(int code) {
  const char *names[] = {"NVRTC_SUCCESS", "NVRTC_ERROR_OUT_OF_MEMORY", "NVRTC_ERROR_PROGRAM_CREATION_FAILURE", "NVRTC_ERROR_INVALID_INPUT",
                         "NVRTC_ERROR_INVALID_PROGRAM", "NVRTC_ERROR_INVALID_OPTION", "NVRTC_ERROR_COMPILATION", "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"};
  return code >= 0 && code < 8 ? names[code] : "NVRTC_ERROR_INTERNAL_ERROR";
}

API int nvrtcCreateProgram(void **out, const char *text, const char *name, int n_headers, const char *const *, const char *const *) {
  CALL(NOTHING);
  if (!text || n_headers < 0) return call.done(NVRTC_INVALID_INPUT);
  Program *p = new Program{text, name ? name : "default_program", "", ""};
  programs.insert(p);
  return *out = p, call.done(0);
}

API int nvrtcDestroyProgram(void **program) {
  CALL(NOTHING);
  Program *p = (Program *)*program;
  if (!programs.erase(p)) return call.done(NVRTC_INVALID_PROGRAM);
  delete p;
  return *program = nullptr, call.done(0);
}

API int nvrtcCompileProgram(void *program, int n, const char *const *options) {
  int arch = 75;
  std::vector<std::string> defines;
  Program *p = (Program *)program;
  {
    CALL(NOTHING);
    if (!programs.count(p)) return call.done(NVRTC_INVALID_PROGRAM);
    for (int k = 0; k < n; k++) {
      std::string option = options[k];
      size_t sm = option.find("sm_");
      if (option.find("arch") != std::string::npos && sm != std::string::npos) arch = atoi(option.c_str() + sm + 3);
      else if (option.rfind("-D", 0) == 0) defines.push_back(option);
      else if (!is_known(option))
        return p->log = "unrecognized option " + option, call.done(NVRTC_INVALID_OPTION);
    }
  }
  bool good = compile(p, arch, defines); /* several at once */
  log_line(std::string("compiled ") + p->name + (good ? "" : ", not"));
  return good ? 0 : NVRTC_COMPILATION;
}

static int size_of(void *program, size_t *out, const std::string Program::*member, bool with_end) {
  if (!programs.count((Program *)program)) return NVRTC_INVALID_PROGRAM;
  return *out = (((Program *)program)->*member).size() + with_end, 0;
}
static int copy_of(void *program, char *out, const std::string Program::*member, bool with_end) {
  if (!programs.count((Program *)program)) return NVRTC_INVALID_PROGRAM;
  const std::string &text = ((Program *)program)->*member;
  memcpy(out, text.c_str(), text.size() + with_end);
  return 0;
}
API int nvrtcGetCUBINSize(void *program, size_t *out) {
  CALL(NOTHING);
  return call.done(size_of(program, out, &Program::image, false));
}
API int nvrtcGetCUBIN(void *program, char *out) {
  CALL(NOTHING);
  return call.done(copy_of(program, out, &Program::image, false));
}
API int nvrtcGetPTXSize(void *program, size_t *out) {
  CALL(NOTHING);
  return call.done(size_of(program, out, &Program::image, false));
}
API int nvrtcGetPTX(void *program, char *out) {
  CALL(NOTHING);
  return call.done(copy_of(program, out, &Program::image, false));
}
API int nvrtcGetProgramLogSize(void *program, size_t *out) {
  CALL(NOTHING);
  return call.done(size_of(program, out, &Program::log, true));
}
API int nvrtcGetProgramLog(void *program, char *out) {
  CALL(NOTHING);
  return call.done(copy_of(program, out, &Program::log, true));
}
