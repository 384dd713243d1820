/* Addresses of devices come from one range and are used once, so that whoever touches memory after its end is found out. */
#include "memory.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <sys/mman.h>

namespace {

enum { PAGE = 4096 };
const uint64_t range_bytes = 1ull << 40;
uint64_t range_begin, range_next;
std::map<uint64_t, Allocation *> allocations; /* by address, for ever */
std::map<uint64_t, Allocation *> live;        /* of devices */
std::vector<Allocation *> opened;

uint64_t up(uint64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

void protect(const Allocation *a, int how) { mprotect((void *)a->at, a->mapped, how); }

bool tail_is_whole(const Allocation *a) { /* a page's worth at most */
  const unsigned char *tail = (const unsigned char *)a->at;
  for (uint64_t k = a->bytes; k < a->mapped; k++)
    if (tail[k] != MEMORY_POISON) return false;
  return true;
}

} // namespace

Allocation *memory_reserve(int device, uint64_t bytes) {
  if (!range_begin) {
    void *range = mmap(nullptr, range_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return nullptr;
    range_begin = range_next = (uint64_t)range;
  }
  uint64_t mapped = up(bytes ? bytes : 1);
  if (mapped > range_begin + range_bytes - range_next - PAGE) return nullptr;
  Allocation *a = new Allocation{range_next, bytes, mapped, device, Allocation::PENDING, false, false, false};
  range_next += mapped + PAGE;
  return allocations[a->at] = a;
}

void memory_begin(Allocation *a) {
  protect(a, PROT_READ | PROT_WRITE);
  memset((void *)a->at, MEMORY_POISON, a->mapped);
  protect(a, PROT_NONE);
  a->state = Allocation::LIVE;
  live[a->at] = a;
}

bool memory_end(Allocation *a) {
  protect(a, PROT_READ | PROT_WRITE);
  bool whole = tail_is_whole(a);
  madvise((void *)a->at, a->mapped, MADV_DONTNEED);
  protect(a, PROT_NONE);
  a->state = Allocation::FREED;
  live.erase(a->at);
  return whole;
}

Allocation *memory_pinned(uint64_t bytes) {
  uint64_t mapped = up(bytes ? bytes : 1);
  void *at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  memset(at, MEMORY_POISON, mapped);
  Allocation *a = new Allocation{(uint64_t)at, bytes, mapped, -1, Allocation::LIVE, false, false, false};
  return allocations[a->at] = a;
}

void memory_unpin(Allocation *a) { /* its addresses are not given out again */
  madvise((void *)a->at, a->mapped, MADV_DONTNEED);
  protect(a, PROT_NONE);
  a->state = Allocation::FREED;
}

Allocation *memory_at(uint64_t address) {
  auto it = allocations.upper_bound(address);
  if (it == allocations.begin()) return nullptr;
  Allocation *a = (--it)->second;
  return address < a->at + a->mapped ? a : nullptr;
}

bool memory_is_device(uint64_t address) { return range_begin && address >= range_begin && address < range_begin + range_bytes; }

void memory_open_one(Allocation *a) {
  if (a->device < 0 || a->state != Allocation::LIVE) return;
  protect(a, PROT_READ | PROT_WRITE);
  opened.push_back(a);
}

void memory_open(int device) {
  for (auto &entry : live)
    if (entry.second->device == device) memory_open_one(entry.second);
}

std::string memory_close() {
  std::string problem;
  for (Allocation *a : opened) {
    if (a->state != Allocation::LIVE) continue;
    if (!tail_is_whole(a)) {
      problem = "a write beyond the end of an allocation of " + std::to_string(a->bytes) + " bytes";
      memset((char *)a->at + a->bytes, MEMORY_POISON, a->mapped - a->bytes);
    }
    protect(a, PROT_NONE);
  }
  opened.clear();
  return problem;
}

std::string memory_where(const void *address) {
  char text[200];
  uint64_t at = (uint64_t)address;
  auto it = allocations.upper_bound(at);
  Allocation *a = it == allocations.begin() ? nullptr : (--it)->second;
  if (!a || at >= a->at + a->mapped + PAGE) {
    snprintf(text, sizeof text, "%p, which is in no allocation", address);
    return text;
  }
  const char *states[] = {"that its stream has not made yet", "that lives", "that was freed"};
  char device[40] = "pinned";
  if (a->device >= 0) snprintf(device, sizeof device, "of device %d", a->device);
  snprintf(text, sizeof text, "%p, byte %lld of an allocation of %lld bytes %s, %s", address, (long long)(at - a->at), (long long)a->bytes,
           device, states[a->state]);
  return text;
}

void memory_forget(int device) {
  std::vector<Allocation *> all;
  for (auto &entry : live)
    if (entry.second->device == device) all.push_back(entry.second);
  for (Allocation *a : all) memory_end(a);
}

std::vector<Allocation *> memory_all() {
  std::vector<Allocation *> all;
  for (auto &entry : allocations)
    if (entry.second->state != Allocation::FREED) all.push_back(entry.second);
  return all;
}
