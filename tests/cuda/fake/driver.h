/* What the files of the fake driver share: handles, streams of deferred work, and the frame of every call. */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "memory.h"

#define API extern "C" __attribute__((visibility("default")))

enum {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201, NO_BINARY = 209, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719,
  CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_UNMATCHED = 903, CAPTURE_IMPLICIT = 906, UPDATE_FAILURE = 910, UNKNOWN = 999
};

struct Stream;

/* Work of a stream.  after: how far other streams must have come. */
struct Op {
  std::string what;
  std::function<int()> run; /* 0, or the error that the device is in from then on */
  std::vector<std::pair<Stream *, uint64_t>> after;
};

struct Graph {
  std::vector<Op> ops;
  bool broken; /* something was called that no capture may hold */
  int mode;    /* who may not call such things meanwhile: 0 anybody, 1 this thread, 2 nobody */
  uint64_t thread;
};

struct Context {
  int device;
  unsigned references;
  int error; /* that every call on it returns from now on */
};

/* Handles are never reused, so that a stale one is known. */
struct Handle {
  enum Kind { STREAM, EVENT, MODULE, GRAPH, EXEC, KINDS } kind;
  bool alive;
};

struct Stream : Handle {
  Context *context;
  bool blocking; /* with the default stream */
  uint64_t issued, done;
  std::deque<Op> queue;
  Graph *capture;
  bool captures; /* it is the one that began */
};

struct Event : Handle {
  Context *context;
  bool timed, recorded;
  Stream *stream;
  uint64_t index;
  double time;
  Graph *capture;
};

struct Module : Handle {
  Context *context;
  void *library;
  std::vector<struct Function *> functions;
};

struct Function {
  Module *module;
  std::string name;
  void (*run)(void **);
  std::vector<unsigned> sizes;
  unsigned most_threads, shared_bytes;
  int dynamic_limit;
};

struct GraphHandle : Handle {
  Graph graph;
};

/* The frame of a call: the lock, what it is told to refuse, the log. */
struct Call {
  const char *name;
  std::unique_lock<std::mutex> lock;
  std::string notes;
  int refused;
  enum Needs { NOTHING, DRIVER, CONTEXT };
  Call(const char *name, Needs needs);
  Call &note(const char *format, ...) __attribute__((format(printf, 2, 3)));
  int done(int result);
};
#define CALL(needs)                          \
  Call call(__func__, Call::needs);          \
  if (call.refused) return call.done(call.refused)

long setting(const char *name, long otherwise); /* of the environment */
uint64_t draw();                                /* from FAKE_CUDA_SEED */
void log_line(const std::string &line);
int device_count();
Context *context_of(int device); /* whether retained or not */
Context *current();
bool is_lazy();
Stream *stream_of(void *handle); /* NULL: there is none */
int submit(Stream *s, Op op);
int finish(Stream *s);           /* runs what it holds; the device's error */
int finish_all(int device);      /* -1: of each */
bool advance();                  /* runs one op of any stream; false: there is none */
bool any_capture(); /* that forbids this thread to wait or to allocate */
void break_captures();
int fault(Context *context, int code, const std::string &why);
void *enter_handle(Handle *h, Handle::Kind kind);
bool is_alive(const void *handle, Handle::Kind kind);
unsigned count_alive(Handle::Kind kind);

#endif
