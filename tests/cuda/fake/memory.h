/* The memory of fake devices: host memory that nobody may touch except a kernel or a copy while it runs. */
#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct Allocation {
  uint64_t at, bytes, mapped;
  int device; /* -1: the host's, pinned */
  enum State { PENDING, LIVE, FREED } state;
  bool of_pool, of_graph, given_back; /* given_back: the call that frees it was made, whether or not its stream has come there */
};

enum { MEMORY_POISON = 0xFF }; /* not a number, -1 */

Allocation *memory_reserve(int device, uint64_t bytes); /* an address; the memory comes with memory_begin */
void memory_begin(Allocation *a);
bool memory_end(Allocation *a); /* false: something was written beyond its end */
Allocation *memory_pinned(uint64_t bytes);
void memory_unpin(Allocation *a);
Allocation *memory_at(uint64_t address);   /* that holds it, whatever its state; or NULL */
bool memory_is_device(uint64_t address);   /* is it in the range of devices at all? */
void memory_open(int device);              /* what is live there can be touched until memory_close */
void memory_open_one(Allocation *a);
std::string memory_close();                /* empty, or which was written beyond its end */
std::string memory_where(const void *address); /* what lies there, in words */
void memory_forget(int device);            /* everything there goes */
std::vector<Allocation *> memory_all();

#endif
