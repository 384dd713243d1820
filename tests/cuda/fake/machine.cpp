/* Threads of a grid as fibers.
 *
 * Blocks run one after another in an order drawn from the seed.  Within a block a fiber takes thread after thread that has not begun; one
 * that waits (at a barrier, or for lanes of its warp) gives way to another fiber.  So a kernel without barriers runs as a loop, and one
 * with barriers sees its threads in another order between any two of them. */
#include "machine.h"

#include <csetjmp>
#include <csignal>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

fake_machine machine;

namespace {

enum { STACK = 128 << 10, BEYOND = 4096, MARK = 0xA7, POISON = 0xFF, KIND_BALLOT = 1 };

struct Fiber {
#if defined(__x86_64__)
  void *sp;
#else
  ucontext_t context;
#endif
  char *stack;
};

struct Thread {
  Fiber *fiber;
  int line, predicate; /* of the barrier that it waits at; line 0: at none */
};

struct Warp {
  unsigned alive, arrived, mask[32];
  int kind[32], from[32];
  unsigned long long value[32], out[32];
};

const Grid *grid;
std::vector<Fiber *> all_fibers, idle;
Fiber main_fiber, *current_fiber;
std::vector<Thread> threads;
std::vector<Warp> warps;
std::vector<unsigned> order, ready;
unsigned next_thread, n_threads, alive, at_barrier, barrier_count, current_thread;
std::string fault;
uint64_t random_state;
bool shuffled;

uint64_t draw() { /* splitmix64 */
  uint64_t z = random_state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

/* ---- fibers ---- */

void worker();

#if defined(__x86_64__)
extern "C" void fake_switch(void **from, void *to);
asm(".text\n.globl fake_switch\n.hidden fake_switch\n.type fake_switch,@function\nfake_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n.size fake_switch,.-fake_switch\n");
void switch_to(Fiber *from, Fiber *to) { fake_switch(&from->sp, to->sp); }
void prepare(Fiber *f) { /* the stack as it is after a call of worker by nobody, whose return address is no multiple of 16 */
  void **top = (void **)(f->stack + STACK);
  *--top = nullptr;
  *--top = (void *)worker;
  for (int k = 0; k < 6; k++) *--top = nullptr;
  f->sp = top;
}
#else
void switch_to(Fiber *from, Fiber *to) { swapcontext(&from->context, &to->context); }
void prepare(Fiber *f) {
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = f->stack;
  f->context.uc_stack.ss_size = STACK;
  f->context.uc_link = nullptr;
  makecontext(&f->context, worker, 0);
}
#endif

Fiber *new_fiber() {
  Fiber *f = new Fiber;
  enum { GUARD = 4096 };
  char *memory = (char *)mmap(nullptr, STACK + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  mprotect(memory, GUARD, PROT_NONE);
  f->stack = memory + GUARD;
  prepare(f);
  all_fibers.push_back(f);
  return f;
}

void to_main() { switch_to(current_fiber, &main_fiber); }

void become(unsigned t) {
  current_thread = t;
  const unsigned *b = grid->block;
  machine.thread[0] = t % b[0], machine.thread[1] = t / b[0] % b[1], machine.thread[2] = t / b[0] / b[1];
}

[[noreturn]] void give_up(const std::string &why) {
  if (fault.empty()) fault = why;
  for (;;) to_main();
}

std::string name_of(unsigned t) {
  const unsigned *b = grid->block;
  return "thread (" + std::to_string(t % b[0]) + ", " + std::to_string(t / b[0] % b[1]) + ", " + std::to_string(t / b[0] / b[1]) + ") of block (" +
         std::to_string(machine.block[0]) + ", " + std::to_string(machine.block[1]) + ", " + std::to_string(machine.block[2]) + ")";
}

/* ---- waiting ---- */

void pass_barrier() {
  if (!at_barrier || at_barrier < alive) return;
  int line = 0;
  unsigned count = 0;
  for (unsigned t = 0; t < n_threads; t++) {
    if (!threads[t].line) continue;
    if (line && threads[t].line != line) {
      fault = "threads of a block wait at different barriers: lines " + std::to_string(line) + " and " + std::to_string(threads[t].line);
      return;
    }
    line = threads[t].line;
    count += threads[t].predicate;
    threads[t].line = 0;
    ready.push_back(t);
  }
  barrier_count = count;
  at_barrier = 0;
}

int count(int line, int predicate) {
  Thread *self = &threads[current_thread];
  unsigned t = current_thread;
  self->line = line, self->predicate = predicate, self->fiber = current_fiber;
  at_barrier++;
  pass_barrier();
  to_main();
  become(t);
  return (int)barrier_count;
}

void barrier(int line) { count(line, 0); }

/* Lets the lanes of a mask go on if all of them have come. */
void pass_warp(unsigned w, unsigned mask) {
  Warp *warp = &warps[w];
  unsigned needed = mask & warp->alive, ballot = 0;
  if (!needed || (warp->arrived & needed) != needed) return;
  int kind = -1;
  for (int lane = 0; lane < 32; lane++) {
    if (!(needed >> lane & 1)) continue;
    if (warp->mask[lane] != mask || (kind >= 0 && warp->kind[lane] != kind)) {
      fault = "lanes of a warp wait for each other in different ways or with different masks";
      return;
    }
    kind = warp->kind[lane];
    ballot |= (unsigned)(warp->value[lane] & 1) << lane;
  }
  for (int lane = 0; lane < 32; lane++) {
    if (!(needed >> lane & 1)) continue;
    int from = warp->from[lane];
    warp->out[lane] = kind == KIND_BALLOT ? ballot : needed >> (from & 31) & 1 ? warp->value[from & 31] : ~0ull;
    ready.push_back(w * 32 + (unsigned)lane);
  }
  warp->arrived &= ~needed;
}

unsigned long long warp(int kind, unsigned mask, unsigned long long value, int from) {
  unsigned t = current_thread, w = t / 32, lane = t % 32;
  if (!(mask >> lane & 1)) give_up(name_of(t) + " is not in its own mask");
  Warp *mine = &warps[w];
  mine->mask[lane] = mask, mine->kind[lane] = kind, mine->value[lane] = value, mine->from[lane] = from;
  mine->arrived |= 1u << lane;
  threads[t].fiber = current_fiber;
  pass_warp(w, mask);
  to_main();
  become(t);
  return warps[w].out[lane];
}

void fault_of_kernel(const char *why) { give_up(name_of(current_thread) + ": " + why); }

void finish(unsigned t) {
  unsigned w = t / 32;
  alive--;
  warps[w].alive &= ~(1u << t % 32);
  pass_barrier();
  for (int lane = 0; lane < 32 && warps[w].arrived; lane++)
    if (warps[w].arrived >> lane & 1) pass_warp(w, warps[w].mask[lane]);
}

/* What a fiber does: thread after thread. */
void worker() {
  for (;;) {
    while (next_thread < n_threads) {
      unsigned t = order[next_thread++];
      become(t);
      grid->run(grid->parameters);
      finish(t);
      if (!ready.empty() || !fault.empty()) break;
    }
    idle.push_back(current_fiber);
    to_main();
  }
}

/* ---- blocks ---- */

void shuffle(std::vector<unsigned> &v) {
  for (size_t k = v.size(); k > 1; k--) std::swap(v[k - 1], v[draw() % k]);
}

void begin_block() {
  if (grid->shared_begin) memset(grid->shared_begin, POISON, (size_t)(grid->shared_end - grid->shared_begin));
  memset(grid->dynamic, POISON, grid->dynamic_bytes);
  if (grid->dynamic_bytes) memset(grid->dynamic + grid->dynamic_bytes, MARK, BEYOND);
  next_thread = at_barrier = 0, alive = n_threads;
  ready.clear();
  for (Thread &t : threads) t = Thread();
  for (size_t w = 0; w < warps.size(); w++) {
    unsigned lanes = n_threads - (unsigned)w * 32;
    warps[w].arrived = 0;
    warps[w].alive = lanes >= 32 ? ~0u : (1u << lanes) - 1;
  }
}

void run_block() {
  begin_block();
  while (fault.empty()) {
    bool fresh = next_thread < n_threads, can = !ready.empty();
    if (!fresh && !can) break;
    if (fresh && (!can || draw() & 1)) {
      if (idle.empty()) idle.push_back(new_fiber());
      current_fiber = idle.back();
      idle.pop_back();
    } else {
      size_t k = shuffled ? draw() % ready.size() : ready.size() - 1;
      unsigned t = ready[k];
      ready[k] = ready.back();
      ready.pop_back();
      current_fiber = threads[t].fiber;
    }
    switch_to(&main_fiber, current_fiber);
  }
  if (!fault.empty()) return;
  if (alive) {
    for (unsigned t = 0; t < n_threads; t++)
      if (threads[t].line || warps[t / 32].arrived >> t % 32 & 1) {
        fault = name_of(t) + (threads[t].line ? " waits for ever at the barrier of line " + std::to_string(threads[t].line)
                                              : std::string(" waits for ever for lanes of its warp"));
        return;
      }
  }
  if (grid->dynamic_bytes)
    for (unsigned k = 0; k < BEYOND; k++)
      if (grid->dynamic[grid->dynamic_bytes + k] != MARK) {
        fault = "a thread wrote beyond the " + std::to_string(grid->dynamic_bytes) + " bytes of shared memory";
        return;
      }
}

void run_blocks() {
  uint64_t total = (uint64_t)grid->grid[0] * grid->grid[1] * grid->grid[2], step = 1, at = 0;
  if (shuffled && total > 1) {
    auto divides = [](uint64_t a, uint64_t b) {
      while (b) {
        uint64_t rest = a % b;
        a = b, b = rest;
      }
      return a != 1;
    };
    do step = 1 + draw() % (total - 1 ? total - 1 : 1);
    while (divides(step, total));
    at = draw() % total;
  }
  for (uint64_t k = 0; k < total && fault.empty(); k++) {
    machine.block[0] = (unsigned)(at % grid->grid[0]);
    machine.block[1] = (unsigned)(at / grid->grid[0] % grid->grid[1]);
    machine.block[2] = (unsigned)(at / grid->grid[0] / grid->grid[1]);
    if (shuffled && (k < 64 || k % 64 == 0)) shuffle(order);
    run_block();
    at = (uint64_t)(((unsigned __int128)at + step) % total);
  }
}

/* ---- signals ---- */

sigjmp_buf escape;
pthread_t runner;
volatile sig_atomic_t escaped_by;
const void *volatile escaped_at;
struct sigaction before[3];
const int signals[3] = {SIGSEGV, SIGBUS, SIGFPE};

void handler(int signal, siginfo_t *info, void *) {
  if (!pthread_equal(pthread_self(), runner)) { /* not ours: as if we were not here */
    for (int k = 0; k < 3; k++) sigaction(signals[k], &before[k], nullptr);
    return;
  }
  escaped_by = signal, escaped_at = info->si_addr;
  siglongjmp(escape, 1);
}

struct Signals {
  stack_t old;
  Signals() {
    static char *stack = (char *)mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t ours = {};
    ours.ss_sp = stack, ours.ss_size = 1 << 16;
    sigaltstack(&ours, &old);
    struct sigaction action = {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    runner = pthread_self();
    for (int k = 0; k < 3; k++) sigaction(signals[k], &action, &before[k]);
  }
  ~Signals() {
    for (int k = 0; k < 3; k++) sigaction(signals[k], &before[k], nullptr);
    sigaltstack(&old, nullptr);
  }
};

} // namespace

std::string machine_run(const Grid &g, uint64_t seed, std::string (*where)(const void *address)) {
  grid = &g;
  machine.barrier = barrier, machine.count = count, machine.warp = warp, machine.fault = fault_of_kernel;
  for (int k = 0; k < 3; k++) machine.block_dim[k] = g.block[k], machine.grid_dim[k] = g.grid[k];
  n_threads = g.block[0] * g.block[1] * g.block[2];
  threads.resize(n_threads);
  warps.resize((n_threads + 31) / 32);
  order.resize(n_threads);
  for (unsigned k = 0; k < n_threads; k++) order[k] = k;
  shuffled = seed != 0;
  random_state = seed;
  fault.clear();
  Signals guard;
  if (sigsetjmp(escape, 1) == 0)
    run_blocks();
  else if (escaped_by == SIGFPE)
    fault = name_of(current_thread) + " divided a whole number by zero";
  else
    fault = name_of(current_thread) + " touched " + where((const void *)escaped_at);
  if (!fault.empty()) { /* what its fibers were at is lost */
    idle = all_fibers;
    for (Fiber *f : idle) prepare(f);
  }
  return fault;
}
