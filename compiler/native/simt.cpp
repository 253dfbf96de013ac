// The fiber runtime behind the simt back end: it runs a kernel that was compiled for the host as a GPU
// would, one fiber per GPU thread, and checks what a GPU would not tell.
//
// A launch has a few workers (operating-system threads).  A worker takes one block at a time and runs
// its threads warp by warp.  A thread runs until it returns or waits at a barrier or a shuffle; only
// then does the worker switch stacks, so a thread that never waits costs a function call.
//
// `simt_lowering.py` puts the calls into the kernel, `simt.py` drives the launch; the structs that all
// three share are `DittoBuffer`, `DittoSite` and `DittoLaunch` below.

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#define DITTO_EXPORT extern "C" __attribute__((visibility("default")))

// ---------------------------------------------------------------------------------------------------
// What Python hands over.  It keeps all of it alive until `ditto_simt_destroy`.

enum DittoBufferFlags : int32_t { kReadOnly = 1, kShared = 2, kPrivate = 4 };

struct DittoBuffer {
  const char *name;
  void *base;     // null for shared memory (each worker has its own) and private memory (each thread has)
  int64_t count;  // elements
  int32_t unit;   // bytes of an element
  int32_t flags;
};

enum DittoKind : int32_t { kLoad = 1, kStore = 2, kAtomic = 4 };

struct DittoSite {
  const char *where;  // a place in the source, or an empty string
  int32_t kind;       // of an access: a DittoKind
  int32_t buffer;     // index into the buffers, or -1 when only the address can tell
  int32_t bytes;      // of one element
  int32_t lanes;      // elements of the vector; 1 for a scalar
  int32_t align;      // of the address, in bytes
  int32_t masked;     // the active lanes come from the preceding `ditto_simt_mask`
};

struct DittoLaunch {
  void (*entry)(void **);  // takes the address of each argument
  void **arguments;        // those of the kernel; shared memory, the worker and the ids follow
  int64_t argument_count;
  const DittoBuffer *buffers;
  int64_t buffer_count;
  const DittoSite *sites;
  int64_t site_count;
  int64_t grid[3];
  int64_t block[3];
  int64_t dynamic_bytes;  // dynamic shared memory
  int64_t stack_bytes;    // that the kernel's own variables need
  int32_t workers;
  int32_t checks;
};

enum DittoStatus : int32_t { kFine = 0, kFault = 1, kNoResources = 2 };

namespace {

constexpr int32_t kVersion = 1;
constexpr int64_t kWarp = 32;
constexpr size_t kStackBytes = 64 * 1024;

// ---------------------------------------------------------------------------------------------------
// Stacks, each with a guard page below.  A kernel cannot recurse, so its need is known before it runs;
// the guard turns a mistake in that sum into a clean crash instead of silent corruption.

size_t page_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

struct Stack {
  char *low = nullptr;  // start of the mapping, guard included
  size_t bytes = 0;     // usable

  char *top() const { return low + page_bytes() + bytes; }
};

Stack map_stack(size_t bytes) {
  const size_t page = page_bytes();
  bytes = (bytes + page - 1) / page * page;
  void *low = mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (low == MAP_FAILED) throw std::bad_alloc();
  if (mprotect(low, page, PROT_NONE) != 0) {
    munmap(low, bytes + page);
    throw std::bad_alloc();
  }
  return {static_cast<char *>(low), bytes};
}

void unmap_stack(const Stack &stack) { munmap(stack.low, stack.bytes + page_bytes()); }

// Stacks of the usual size outlive a launch: mapping and first touching one costs more than a short block.
class StackPool {
 public:
  Stack take(size_t bytes) {
    if (bytes <= kStackBytes) {
      const std::lock_guard<std::mutex> hold(mutex_);
      if (!free_.empty()) {
        const Stack stack = free_.back();
        free_.pop_back();
        return stack;
      }
    }
    return map_stack(bytes < kStackBytes ? kStackBytes : bytes);
  }

  void give(const Stack &stack) noexcept {
    if (stack.bytes == usual_ && keep(stack)) return;
    unmap_stack(stack);
  }

 private:
  bool keep(const Stack &stack) noexcept {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (free_.size() >= kKept) return false;
    try {
      free_.push_back(stack);
    } catch (const std::bad_alloc &) {
      return false;
    }
    return true;
  }

  static constexpr size_t kKept = 4096;
  const size_t usual_ = (kStackBytes + page_bytes() - 1) / page_bytes() * page_bytes();
  std::mutex mutex_;
  std::vector<Stack> free_;
};

StackPool &stack_pool() {
  static StackPool *const pool = new StackPool;  // never destroyed: a launch may outlast static objects
  return *pool;
}

}  // namespace

// ---------------------------------------------------------------------------------------------------
// Switching stacks.  `swapcontext` makes a system call for the signal mask, which costs more than the
// rest of a thread's step; the two usual machines therefore get their own ten instructions.

#if defined(__ELF__) && defined(__x86_64__) && !defined(DITTO_SIMT_UCONTEXT)
#define DITTO_SIMT_OWN_SWITCH
__asm__(R"(
        .pushsection .text
        .p2align 4
        .globl ditto_simt_switch
        .hidden ditto_simt_switch
        .type ditto_simt_switch, @function
ditto_simt_switch:
        pushq %rbp
        pushq %rbx
        pushq %r12
        pushq %r13
        pushq %r14
        pushq %r15
        movq %rsp, (%rdi)
        movq %rsi, %rsp
        popq %r15
        popq %r14
        popq %r13
        popq %r12
        popq %rbx
        popq %rbp
        ret
        .size ditto_simt_switch, .-ditto_simt_switch
        .p2align 4
        .globl ditto_simt_begin
        .hidden ditto_simt_begin
        .type ditto_simt_begin, @function
ditto_simt_begin:
        movq %r12, %rdi
        callq *%r13
        ud2
        .size ditto_simt_begin, .-ditto_simt_begin
        .popsection
)");
#elif defined(__ELF__) && defined(__aarch64__) && !defined(DITTO_SIMT_UCONTEXT)
#define DITTO_SIMT_OWN_SWITCH
__asm__(R"(
        .pushsection .text
        .p2align 4
        .globl ditto_simt_switch
        .hidden ditto_simt_switch
        .type ditto_simt_switch, %function
ditto_simt_switch:
        sub sp, sp, #160
        stp x19, x20, [sp, #0]
        stp x21, x22, [sp, #16]
        stp x23, x24, [sp, #32]
        stp x25, x26, [sp, #48]
        stp x27, x28, [sp, #64]
        stp x29, x30, [sp, #80]
        stp d8, d9, [sp, #96]
        stp d10, d11, [sp, #112]
        stp d12, d13, [sp, #128]
        stp d14, d15, [sp, #144]
        mov x9, sp
        str x9, [x0]
        mov sp, x1
        ldp x19, x20, [sp, #0]
        ldp x21, x22, [sp, #16]
        ldp x23, x24, [sp, #32]
        ldp x25, x26, [sp, #48]
        ldp x27, x28, [sp, #64]
        ldp x29, x30, [sp, #80]
        ldp d8, d9, [sp, #96]
        ldp d10, d11, [sp, #112]
        ldp d12, d13, [sp, #128]
        ldp d14, d15, [sp, #144]
        add sp, sp, #160
        ret
        .size ditto_simt_switch, .-ditto_simt_switch
        .p2align 4
        .globl ditto_simt_begin
        .hidden ditto_simt_begin
        .type ditto_simt_begin, %function
ditto_simt_begin:
        mov x0, x20
        blr x19
        brk #0
        .size ditto_simt_begin, .-ditto_simt_begin
        .popsection
)");
#else
#include <ucontext.h>
#endif

#ifdef DITTO_SIMT_OWN_SWITCH
extern "C" __attribute__((visibility("hidden"))) void ditto_simt_switch(void **save, void *load);
extern "C" __attribute__((visibility("hidden"))) void ditto_simt_begin();
#endif

namespace {

using FiberMain = void (*)(void *);

#ifdef DITTO_SIMT_OWN_SWITCH

class Context {
 public:
  // Make the context call `main(argument)` on the stack that ends at `top`; `main` never returns.
  void prepare(const Stack &, char *top, FiberMain main, void *argument) {
#ifdef __x86_64__
    // r15, r14, r13, r12, rbx, rbp, return address; the stack is aligned once they are popped.
    void *const frame[] = {nullptr, nullptr,  reinterpret_cast<void *>(main),
                           argument, nullptr, nullptr, reinterpret_cast<void *>(&ditto_simt_begin)};
    const size_t frame_bytes = sizeof frame;
#else
    // x19, x20 … x29, x30, d8 … d15.
    void *frame[20] = {reinterpret_cast<void *>(main), argument};
    frame[11] = reinterpret_cast<void *>(&ditto_simt_begin);
    const size_t frame_bytes = sizeof frame;
#endif
    char *const end = reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(top) / 16 * 16 - 32);
    std::memset(end, 0, 32);
    stack_pointer_ = end - frame_bytes;
    std::memcpy(stack_pointer_, frame, frame_bytes);
  }

  static void change(Context &from, Context &to) {
    void *const target = to.stack_pointer_;
    ditto_simt_switch(&from.stack_pointer_, target);
  }

 private:
  void *stack_pointer_ = nullptr;
};

#else

class Context {
 public:
  void prepare(const Stack &stack, char *top, FiberMain main, void *argument) {
    char *const low = stack.top() - stack.bytes;
    getcontext(&context_);
    context_.uc_stack.ss_sp = low;
    context_.uc_stack.ss_size = static_cast<size_t>(top - low);
    context_.uc_link = nullptr;
    main_ = main;
    argument_ = argument;
    const uintptr_t self = reinterpret_cast<uintptr_t>(this);  // makecontext passes ints only
    makecontext(&context_, reinterpret_cast<void (*)()>(&Context::begin), 2, static_cast<unsigned>(self),
                static_cast<unsigned>(static_cast<uint64_t>(self) >> 32));
  }

  static void change(Context &from, Context &to) { swapcontext(&from.context_, &to.context_); }

 private:
  static void begin(unsigned low, unsigned high) {
    auto *const self = reinterpret_cast<Context *>(static_cast<uintptr_t>(static_cast<uint64_t>(high) << 32 | low));
    self->main_(self->argument_);
  }

  ucontext_t context_;
  FiberMain main_ = nullptr;
  void *argument_ = nullptr;
};

#endif

struct Fiber {
  Context context;
  Stack stack;
};

// ---------------------------------------------------------------------------------------------------
// The shadow of one element: who touched it in this launch.
//
// Two accesses of different threads are ordered if and only if they are in the same block with a barrier
// between them (in different *epochs*).  They race if they are not ordered and their kinds conflict: a
// store conflicts with everything, a load and an atomic conflict with each other.
//
// Guarantee: an access is reported if and only if an earlier one of this launch races with it, however
// many threads touched the element.  Two threads are enough to remember, because as long as nothing raced,
//   - accesses from several blocks are all of one kind (loads, or atomics), so an access of another kind
//     races with one of any two blocks, whichever block it comes from;
//   - within one block only the newest epoch is unordered with what comes next, and if two or more threads
//     touched the element in it they did so with one kind, so the same holds for any two threads;
//   - an access from a second block conflicts with kinds that any epoch of the first one had, and those
//     are three bits (`ever`).
// Conflicts are symmetric, so the order in which fibers and workers run changes which of the two accesses
// is reported, never whether.

class Shadow {
 public:
  struct Other {
    uint32_t block, thread;
    int32_t kind;
  };

  // Enter an access.  True if it races; `other` is then the earlier one.
  bool touch(int32_t kind, uint32_t block, uint32_t epoch, uint32_t thread, Other &other) {
    if (block_ == 0) {
      block_ = block;
      epoch_ = epoch;
    } else if (many_) {
      return touch_many(kind, block, other);
    } else if (block_ != block) {
      return touch_second(kind, block, thread, other);
    }
    if (epoch_ != epoch) {
      epoch_ = epoch;
      now_ = 0;
      two_ = 0;
    }
    if (now_ == 0) {
      first_ = thread;
    } else if ((first_ != thread || two_) && (now_ & conflicts(kind))) {
      other = {small(block_), small(first_ != thread ? first_ : second_), one_of(now_ & conflicts(kind))};
      return true;
    } else if (first_ != thread && !two_) {
      two_ = 1;
      second_ = thread;
    }
    now_ |= static_cast<uint32_t>(kind);
    remember(kind, thread);
    return false;
  }

  // For shared memory, which every block starts anew.
  void forget_other_block(uint32_t block) {
    if (block_ == block) return;
    *this = Shadow();
  }

  bool written() const { return (ever_ & (kStore | kAtomic)) != 0; }

  // Nothing else happens under the lock, and no fiber switches while it holds one.
  void lock() {
    for (int spins = 0; __atomic_exchange_n(&lock_, uint8_t{1}, __ATOMIC_ACQUIRE) != 0; ++spins) {
      if (spins >= 64) std::this_thread::yield();
    }
  }
  void unlock() { __atomic_store_n(&lock_, uint8_t{0}, __ATOMIC_RELEASE); }

 private:
  static uint32_t conflicts(int32_t kind) {
    return kind == kLoad ? kStore | kAtomic : kind == kAtomic ? kStore | kLoad : kLoad | kStore | kAtomic;
  }

  static uint32_t small(uint64_t field) { return static_cast<uint32_t>(field); }

  static int32_t one_of(uint64_t kinds) { return static_cast<int32_t>(kinds & -kinds); }

  static uint32_t slot(int32_t kind) { return kind == kLoad ? 0 : kind == kStore ? 1 : 2; }

  void remember(int32_t kind, uint32_t thread) {
    ever_ |= static_cast<uint32_t>(kind);
    const uint32_t shift = slot(kind) * 10;
    last_ = (small(last_) & ~(1023u << shift)) | thread << shift;
  }

  uint32_t last(int32_t kind) const { return small(last_) >> (slot(kind) * 10) & 1023u; }

  // The element belongs to one block so far, and this is another one.
  bool touch_second(int32_t kind, uint32_t block, uint32_t thread, Other &other) {
    const uint64_t clash = ever_ & conflicts(kind);
    if (clash) {
      other = {small(block_), last(one_of(clash)), one_of(clash)};
      return true;
    }
    first_ = last(kind);  // `ever` holds this one kind
    many_ = 1;
    epoch_ = block;
    second_ = thread;
    return false;
  }

  // Several blocks have touched it, all with one kind.
  bool touch_many(int32_t kind, uint32_t block, Other &other) const {
    if (!(ever_ & conflicts(kind))) return false;
    const bool first = block_ != block;
    other = {small(first ? block_ : epoch_), small(first ? first_ : second_), one_of(ever_)};
    return true;
  }

  uint64_t block_ : 30;   // number of the block plus one; 0: nobody has been here
  uint64_t epoch_ : 30;   // the newest epoch; once `many`, a second block
  uint64_t two_ : 1;      // at least two threads in the newest epoch
  uint64_t many_ : 1;     // at least two blocks
  uint64_t last_ : 30;    // for each kind the thread that did it last, ten bits each
  uint64_t first_ : 10;   // a thread of the newest epoch (or of `block`)
  uint64_t second_ : 10;  // if `two` (or `many`): another one
  uint64_t now_ : 3;      // kinds in the newest epoch
  uint64_t ever_ : 3;     // kinds in any epoch
  uint8_t lock_;          // a memory location of its own, which the bit fields leave alone
};

// All bits zero is the empty state, so that `calloc` gives a shadow whose untouched pages cost nothing.
static_assert(sizeof(Shadow) == 16 && std::is_trivial<Shadow>::value, "one allocation, no constructor");
struct Free {
  void operator()(void *memory) const { std::free(memory); }
};
using Shadows = std::unique_ptr<Shadow, Free>;

Shadows make_shadows(int64_t count) {
  auto *const memory = static_cast<Shadow *>(std::calloc(static_cast<size_t>(count) + 1, sizeof(Shadow)));
  if (!memory) throw std::bad_alloc();
  return Shadows(memory);
}

// ---------------------------------------------------------------------------------------------------
// Text of messages.

std::string triple(int64_t x, int64_t y, int64_t z) {
  return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
}

std::string triple(uint64_t linear, const int64_t (&shape)[3]) {
  const uint64_t x = static_cast<uint64_t>(shape[0]), y = static_cast<uint64_t>(shape[1]);
  return triple(static_cast<int64_t>(linear % x), static_cast<int64_t>(linear / x % y),
                static_cast<int64_t>(linear / x / y));
}

const char *kind_name(int32_t kind) { return kind == kLoad ? "load" : kind == kStore ? "store" : "atomic"; }

std::string at(const DittoSite &site) { return *site.where ? std::string(", at ") + site.where : std::string(); }

std::string place(const DittoSite &site) { return *site.where ? std::string(" at ") + site.where : std::string(); }

// ---------------------------------------------------------------------------------------------------
// A launch, and one worker of it.

class Worker;

struct Launch {
  explicit Launch(const DittoLaunch &given) : config(given) {
    blocks = config.grid[0] * config.grid[1] * config.grid[2];
    threads = config.block[0] * config.block[1] * config.block[2];
    worker_count = config.workers < blocks ? config.workers : static_cast<int32_t>(blocks);
    shadows.resize(static_cast<size_t>(config.buffer_count));
    for (int64_t b = 0; config.checks && b < config.buffer_count; ++b) {
      const DittoBuffer &buffer = config.buffers[b];
      if (!(buffer.flags & (kReadOnly | kShared | kPrivate))) shadows[static_cast<size_t>(b)] = make_shadows(buffer.count);
    }
  }

  ~Launch() {
    stop.store(true, std::memory_order_relaxed);
    for (std::thread &thread : pool) thread.join();
  }

  void report(int32_t what, std::string &&text) {
    const std::lock_guard<std::mutex> hold(mutex);
    if (status == kFine) {
      status = what;
      message = std::move(text);
    }
    stop.store(true, std::memory_order_relaxed);
  }

  void start();
  void work() noexcept;

  const DittoLaunch config;
  int64_t blocks, threads;
  int32_t worker_count;
  std::vector<Shadows> shadows;  // of global memory
  std::atomic<int64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable finished;
  int32_t running = 0;
  int32_t status = kFine;
  std::string message;
  std::vector<std::thread> pool;
};

enum class State : uint8_t { kFresh, kReady, kAtBarrier, kAtShuffle, kDone };

struct Thread {
  State state;
  int32_t site;  // where it waits
  Fiber *fiber;
  int64_t id[3];
  int64_t value;  // of a shuffle: what it offers, then what it gets
  int32_t mode, offset, source;
  bool valid;
};

// Where a buffer lies for this worker.
struct View {
  uintptr_t base;
  uint64_t bytes;
  Shadow *shadow;
  const DittoBuffer *buffer;
};

// A site whose accesses are fine if their address is: it lies less than `starts` bytes above `base`, and has no
// bit of `misaligned`.  With `starts` = 0 no address is fine, so that all sites use the same test.
struct Plain {
  uintptr_t base;
  uint64_t bytes, starts, misaligned;
  int64_t more;  // lanes after the first
};

// What the kernel's arguments after its own and those of shared memory point at; the order is that of
// `IDS` in simt_lowering.py.
struct Ids {
  int64_t thread[3], block[3], block_size[3], grid_size[3];
  int64_t lane, warp, dynamic_bytes;
};

class Worker {
 public:
  explicit Worker(Launch &launch);
  ~Worker();
  Worker(const Worker &) = delete;
  Worker &operator=(const Worker &) = delete;

  void run_block(int64_t block);

  // Called on a fiber, by the kernel.
  void wait(State state, int32_t site);
  int64_t shuffle(int32_t site, int32_t mode, int64_t value, int32_t offset, int32_t width, bool &valid);
  template <int rank>
  void access(int32_t site, uintptr_t pointer, int64_t linear, const int64_t *index, const int64_t *size);
  void divide_by_zero(int32_t site);

  uint64_t mask = 0;

 private:
  struct Request;

  [[noreturn]] static void fiber_main(void *worker);
  void run_threads();
  void place_memory();
  void point_arguments();
  void plan_checks();
  void enter(uint32_t thread);
  void resume(uint32_t thread);
  Fiber *idle_fiber();
  bool run_warp(uint32_t first, uint32_t last);
  bool exchange(uint32_t first, uint32_t last);
  bool exchange_lane(uint32_t first, uint32_t last, uint32_t thread);
  bool meet_at_barrier();
  bool end_epoch();
  bool divergent(const char *what, uint32_t waiting, uint32_t other);
  bool stopped() const { return launch_.stop.load(std::memory_order_relaxed); }
  [[noreturn]] void leave();
  void fault(std::string &&text);
  std::string here() const;
  std::string who(uint32_t block, uint32_t thread) const;
  std::string element(const Request &request, uint64_t offset) const;
  const DittoSite &site(int32_t number) const { return launch_.config.sites[number]; }
  View find(uintptr_t pointer) const;

  void check(int32_t site, uintptr_t pointer, int64_t linear, int rank, const int64_t *index, const int64_t *size);
  static bool outside(const Request &request, int lane);
  void check_lanes(const Request &request);
  void check_shadow(const Request &request, uint64_t offset, uint64_t bytes);
  void uninitialised(const Request &request, uint64_t offset);
  void out_of_bounds(const Request &request, uint64_t offset);
  void race(const Request &request, uint64_t offset, const Shadow::Other &other);
  [[noreturn]] void fail(std::string (Worker::*text)(const Request &, uint64_t) const, const Request &, uint64_t);
  std::string misaligned_text(const Request &request, uint64_t offset) const;
  std::string read_only_text(const Request &request, uint64_t offset) const;
  std::string unknown_text(const Request &request, uint64_t offset) const;

  Launch &launch_;
  Ids ids_;
  Worker *self_ = this;
  std::vector<std::unique_ptr<char, Free>> shared_;
  std::vector<void *> shared_bases_;
  std::vector<Shadows> shared_shadows_;
  std::vector<View> views_;
  std::vector<Plain> plain_;  // by site
  std::vector<void *> arguments_;
  std::vector<Thread> threads_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber *> idle_;
  Context scheduler_;
  Fiber *fiber_ = nullptr;     // that runs now
  uint32_t current_ = 0;       // thread that runs now
  uint32_t start_before_ = 0;  // a fiber whose thread returned goes on with the next fresh one below this
  uint32_t block_ = 0;         // number of the block plus one
  uint32_t epoch_ = 1;
  std::string pending_;        // see `uninitialised`
};

// One access as the kernel asks for it.
struct Worker::Request {
  const DittoSite &site;
  const View view;
  uint64_t offset;  // in bytes, of lane 0
  int rank;
  const int64_t *index, *size;
};

Worker::Worker(Launch &launch) : launch_(launch), ids_() {
  const DittoLaunch &config = launch_.config;
  std::memcpy(ids_.block_size, config.block, sizeof ids_.block_size);
  std::memcpy(ids_.grid_size, config.grid, sizeof ids_.grid_size);
  ids_.dynamic_bytes = config.dynamic_bytes;
  threads_.resize(static_cast<size_t>(launch_.threads));
  for (size_t t = 0; t < threads_.size(); ++t) {
    const int64_t linear = static_cast<int64_t>(t), x = config.block[0], y = config.block[1];
    threads_[t] = Thread();
    threads_[t].id[0] = linear % x;
    threads_[t].id[1] = linear / x % y;
    threads_[t].id[2] = linear / x / y;
  }
  place_memory();
  point_arguments();
  plan_checks();
}

Worker::~Worker() {
  for (const auto &fiber : fibers_) stack_pool().give(fiber->stack);  // whatever still waits on one is abandoned
}

void Worker::place_memory() {
  const DittoLaunch &config = launch_.config;
  for (int64_t b = 0; b < config.buffer_count; ++b) {
    const DittoBuffer &buffer = config.buffers[b];
    const uint64_t bytes = static_cast<uint64_t>(buffer.count) * static_cast<uint64_t>(buffer.unit);
    void *base = buffer.base;
    Shadow *shadow = launch_.shadows[static_cast<size_t>(b)].get();
    if (buffer.flags & kShared) {
      base = std::aligned_alloc(64, (bytes + 64) / 64 * 64);
      if (!base) throw std::bad_alloc();
      shared_.emplace_back(static_cast<char *>(base));
      std::memset(base, 0, bytes);
      shared_bases_.push_back(base);
      if (config.checks) {
        shared_shadows_.push_back(make_shadows(buffer.count));
        shadow = shared_shadows_.back().get();
      }
    }
    views_.push_back({reinterpret_cast<uintptr_t>(base), bytes, shadow, &buffer});
  }
}

void Worker::point_arguments() {
  arguments_.assign(launch_.config.arguments, launch_.config.arguments + launch_.config.argument_count);
  for (void *&base : shared_bases_) arguments_.push_back(&base);
  arguments_.push_back(&self_);
  static_assert(sizeof(Ids) == 15 * sizeof(int64_t), "one argument each");
  for (size_t i = 0; i < sizeof(Ids) / sizeof(int64_t); ++i) arguments_.push_back(reinterpret_cast<int64_t *>(&ids_) + i);
}

void Worker::plan_checks() {
  plain_.resize(static_cast<size_t>(launch_.config.site_count));
  for (size_t i = 0; i < plain_.size(); ++i) {
    const DittoSite &s = launch_.config.sites[i];
    Plain &plain = plain_[i];
    plain = Plain();
    if (s.kind != kLoad || s.buffer < 0 || s.masked) continue;
    const View &view = views_[static_cast<size_t>(s.buffer)];
    const uint64_t width = static_cast<uint64_t>(s.bytes) * static_cast<uint64_t>(s.lanes);
    if (!(view.buffer->flags & kReadOnly) || view.bytes < width) continue;
    plain = {view.base, static_cast<uint64_t>(s.bytes), view.bytes - width + 1, static_cast<uint64_t>(s.align) - 1, s.lanes - 1};
  }
}

// --- Scheduling ------------------------------------------------------------------------------------

void Worker::run_block(int64_t block) {
  const int64_t x = ids_.grid_size[0], y = ids_.grid_size[1];
  ids_.block[0] = block % x;
  ids_.block[1] = block / x % y;
  ids_.block[2] = block / x / y;
  block_ = static_cast<uint32_t>(block) + 1;
  epoch_ = 1;
  for (Thread &thread : threads_) thread.state = State::kFresh;
  const uint32_t count = static_cast<uint32_t>(threads_.size());
  do {
    for (uint32_t first = 0; first < count; first += kWarp) {
      const uint32_t last = first + kWarp < count ? first + kWarp : count;
      if (!run_warp(first, last)) return;
    }
  } while (meet_at_barrier());
}

// Run a warp until each lane has returned or waits at a barrier.  False once the launch has stopped.
bool Worker::run_warp(uint32_t first, uint32_t last) {
  start_before_ = last;
  do {
    for (uint32_t t = first; t < last; ++t) {
      if (threads_[t].state == State::kFresh || threads_[t].state == State::kReady) resume(t);
      if (stopped()) return false;
    }
  } while (exchange(first, last));
  return !stopped();
}

// All threads have returned or wait at a barrier: let them pass it.  False when the block is over.
bool Worker::meet_at_barrier() {
  if (!end_epoch()) return false;
  const uint32_t count = static_cast<uint32_t>(threads_.size());
  uint32_t waiting = 0;
  while (waiting < count && threads_[waiting].state != State::kAtBarrier) ++waiting;
  if (waiting == count) return false;
  for (uint32_t t = 0; t < count; ++t) {
    const Thread &thread = threads_[t];
    if (thread.state != State::kAtBarrier || thread.site != threads_[waiting].site) return divergent("barrier", waiting, t);
  }
  for (Thread &thread : threads_) thread.state = State::kReady;
  ++epoch_;
  return true;
}

// An uninitialised read that no race explained by now is what it looked like.
bool Worker::end_epoch() {
  if (pending_.empty()) return true;
  launch_.report(kFault, std::move(pending_));
  return false;
}

// Report that a thread waits for one that does not come.  Always false.
bool Worker::divergent(const char *what, uint32_t waiting, uint32_t other) {
  const Thread &late = threads_[other];
  std::string text = std::string("divergent ") + what + ": " + who(block_, waiting) + " waits at the " + what +
                     place(site(threads_[waiting].site)) + ", thread " + triple(other, launch_.config.block);
  if (late.state == State::kDone) {
    text += " has returned";
  } else {
    text += std::string(" at the ") + (late.state == State::kAtBarrier ? "barrier" : "shuffle") + place(site(late.site));
  }
  fault(std::move(text));
  return false;
}

// Give each lane that waits at a shuffle its value.  False when none waits, or on a fault.
bool Worker::exchange(uint32_t first, uint32_t last) {
  uint32_t waiting = first;
  while (waiting < last && threads_[waiting].state != State::kAtShuffle) ++waiting;
  if (waiting == last) return false;
  for (uint32_t t = first; t < last; ++t) {
    const Thread &thread = threads_[t];
    if (thread.state != State::kAtShuffle || thread.site != threads_[waiting].site) return divergent("shuffle", waiting, t);
  }
  int64_t offered[kWarp];
  for (uint32_t t = first; t < last; ++t) offered[t - first] = threads_[t].value;
  for (uint32_t t = first; t < last; ++t) {
    if (!exchange_lane(first, last, t)) return false;
    Thread &thread = threads_[t];
    thread.value = offered[thread.valid ? static_cast<uint32_t>(thread.source) : t - first];
    thread.state = State::kReady;
  }
  return true;
}

// Turn the lane's offset into the lane that it reads.  PTX uses the low five bits of the offset, and a
// lane whose source lies outside the warp gets its own value back.
bool Worker::exchange_lane(uint32_t first, uint32_t last, uint32_t t) {
  Thread &thread = threads_[t];
  const int32_t lane = static_cast<int32_t>(t - first), offset = thread.offset & 31;
  const int32_t source =
      thread.mode == 0 ? lane ^ offset : thread.mode == 1 ? lane - offset : thread.mode == 2 ? lane + offset : offset;
  thread.valid = source >= 0 && source < kWarp;
  thread.source = source;
  if (!thread.valid || source < static_cast<int32_t>(last - first)) return true;
  fault("shuffle from a missing lane: " + who(block_, t) + " reads lane " + std::to_string(source) + " of a warp of " +
        std::to_string(last - first) + at(site(thread.site)));
  return false;
}

// Let thread `t` run on its fiber until it waits or returns.
void Worker::resume(uint32_t t) {
  Fiber *const fiber = threads_[t].state == State::kFresh ? idle_fiber() : threads_[t].fiber;
  enter(t);
  threads_[t].fiber = fiber;
  fiber_ = fiber;
  Context::change(scheduler_, fiber->context);
}

void Worker::enter(uint32_t t) {
  current_ = t;
  std::memcpy(ids_.thread, threads_[t].id, sizeof ids_.thread);
  ids_.lane = t % kWarp;
  ids_.warp = t / kWarp;
}

Fiber *Worker::idle_fiber() {
  if (!idle_.empty()) {
    Fiber *const fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }
  idle_.reserve(fibers_.size() + 1);  // so that a fiber never has to allocate
  auto fiber = std::make_unique<Fiber>();
  fiber->stack = stack_pool().take(kStackBytes / 2 + static_cast<size_t>(launch_.config.stack_bytes));
  // Tops at one page offset would all compete for the same few cache sets.
  char *const top = fiber->stack.top() - fibers_.size() % 16 * 192;
  fiber->context.prepare(fiber->stack, top, &Worker::fiber_main, this);
  fibers_.push_back(std::move(fiber));
  return fibers_.back().get();
}

void Worker::fiber_main(void *worker) {
  for (;;) static_cast<Worker *>(worker)->run_threads();
}

// Run the current thread, and then fresh ones of the warp as long as none waits; then lie idle.
void Worker::run_threads() {
  Fiber *const fiber = fiber_;
  for (;;) {
    launch_.config.entry(arguments_.data());
    threads_[current_].state = State::kDone;
    const uint32_t following = current_ + 1;
    if (following >= start_before_ || threads_[following].state != State::kFresh || stopped()) break;
    enter(following);
    threads_[following].fiber = fiber;
  }
  idle_.push_back(fiber);
  Context::change(fiber->context, scheduler_);
}

void Worker::wait(State state, int32_t where) {
  Thread &thread = threads_[current_];
  thread.state = state;
  thread.site = where;
  Fiber *const fiber = thread.fiber;
  Context::change(fiber->context, scheduler_);
}

int64_t Worker::shuffle(int32_t where, int32_t mode, int64_t value, int32_t offset, int32_t width, bool &valid) {
  if (width != kWarp) {
    fault("shuffle of width " + std::to_string(width) + ": only 32 means the same on a GPU, " + here() + at(site(where)));
    leave();
  }
  Thread &thread = threads_[current_];
  thread.mode = mode;
  thread.value = value;
  thread.offset = offset;
  wait(State::kAtShuffle, where);
  valid = thread.valid;
  return thread.value;
}

// Abandon the thread: its fiber is never resumed.  No frame of it owns anything.
void Worker::leave() {
  Fiber *const fiber = threads_[current_].fiber;
  Context::change(fiber->context, scheduler_);
  std::abort();
}

// --- Faults ----------------------------------------------------------------------------------------

std::string Worker::who(uint32_t block, uint32_t thread) const {
  return "block " + triple(block - 1, launch_.config.grid) + " thread " + triple(thread, launch_.config.block);
}

std::string Worker::here() const { return who(block_, current_); }

// An uninitialised read came first, and may be why the kernel went astray.
void Worker::fault(std::string &&text) { launch_.report(kFault, pending_.empty() ? std::move(text) : std::move(pending_)); }

std::string Worker::element(const Request &request, uint64_t offset) const {
  const DittoBuffer &buffer = *request.view.buffer;
  const int64_t bytes = static_cast<int64_t>(offset), unit = buffer.unit;
  const int64_t index = bytes / unit - (bytes % unit < 0 ? 1 : 0);
  return std::string(buffer.name) + "[" + std::to_string(index) + "] of " + std::to_string(buffer.count);
}

void Worker::fail(std::string (Worker::*text)(const Request &, uint64_t) const, const Request &request, uint64_t offset) {
  fault((this->*text)(request, offset));
  leave();
}

// The address leaves the buffer, or an index leaves its dimension (which may well be inside the buffer).
void Worker::out_of_bounds(const Request &request, uint64_t offset) {
  std::string text = std::string("out-of-bounds ") + kind_name(request.site.kind) + ": " + element(request, offset) + ", " + here();
  if (request.rank > 1 || (offset < request.view.bytes && request.rank == 1)) {
    std::string index, size;
    for (int d = 0; d < request.rank; ++d) {
      index += (d ? ", " : "") + std::to_string(request.index[d]);
      size += (d ? ", " : "") + std::to_string(request.size[d]);
    }
    text += ", index [" + index + "] of [" + size + "]";
  }
  fault(text + at(request.site));
}

std::string Worker::misaligned_text(const Request &request, uint64_t offset) const {
  return std::string("misaligned ") + kind_name(request.site.kind) + ": " + element(request, offset) + " is not on a " +
         std::to_string(request.site.align) + "-byte boundary, " + here() + at(request.site);
}

std::string Worker::read_only_text(const Request &request, uint64_t offset) const {
  return std::string("write to read-only memory: ") + kind_name(request.site.kind) + " to " + element(request, offset) + ", " +
         here() + at(request.site);
}

std::string Worker::unknown_text(const Request &request, uint64_t) const {
  return std::string(kind_name(request.site.kind)) + " outside of every buffer, " + here() + at(request.site);
}

void Worker::race(const Request &request, uint64_t offset, const Shadow::Other &other) {
  std::string text = "data race on " + element(request, offset) + ": " + kind_name(other.kind) + " by " +
                     who(other.block, other.thread) + " and " + kind_name(request.site.kind) + " by " + here() +
                     (other.block == block_ ? " with no barrier between them" : ", whose blocks are in no order") +
                     at(request.site);
  launch_.report(kFault, std::move(text));
}

// Most often the write comes later in the same epoch, from a thread that has yet to run: then the fault is
// the race, and `race` reports it when it happens.  So keep this one back until the epoch ends.
void Worker::uninitialised(const Request &request, uint64_t offset) {
  if (!pending_.empty()) return;
  pending_ = std::string("uninitialised ") + kind_name(request.site.kind) + ": nothing wrote " + element(request, offset) +
             ", " + here() + at(request.site);
}

void Worker::divide_by_zero(int32_t where) {
  fault("division by zero, " + here() + at(site(where)));
  leave();
}

// --- Checks ----------------------------------------------------------------------------------------

View Worker::find(uintptr_t pointer) const {
  for (const View &view : views_) {
    if (view.base != 0 && pointer == view.base) return view;
  }
  for (const View &view : views_) {
    if (view.base != 0 && pointer - view.base < view.bytes) return view;
  }
  return {0, 0, nullptr, nullptr};
}

// Most accesses are loads from read-only memory, of which only the address has to be checked; they go no
// further than this.  `pointer` is where the memref starts, `linear` the element counted from there.  `index`
// and `size` have one entry per dimension; a vector extends along the last one.
template <int rank>
inline void Worker::access(int32_t where, uintptr_t pointer, int64_t linear, const int64_t *index, const int64_t *size) {
  const Plain &plain = plain_[static_cast<size_t>(where)];
  const uint64_t address = pointer + static_cast<uint64_t>(linear) * plain.bytes;
  bool fine = address - plain.base < plain.starts && (address & plain.misaligned) == 0;
  for (int d = 0; d < rank; ++d) {
    fine &= index[d] >= 0 && index[d] + (d == rank - 1 ? plain.more : 0) < size[d];
  }
  if (!fine || stopped()) check(where, pointer, linear, rank, index, size);
}

void Worker::check(int32_t where, uintptr_t pointer, int64_t linear, int rank, const int64_t *index, const int64_t *size) {
  if (stopped()) leave();
  const DittoSite &s = site(where);
  View view = s.buffer >= 0 ? views_[static_cast<size_t>(s.buffer)] : find(pointer);
  if (view.buffer && view.buffer->flags & kPrivate) view.base = pointer;
  const uint64_t start = pointer + static_cast<uint64_t>(linear) * static_cast<uint64_t>(s.bytes);
  const Request request = {s, view, start - view.base, rank, index, size};
  if (!view.buffer) fail(&Worker::unknown_text, request, 0);
  check_lanes(request);
}

bool Worker::outside(const Request &request, int lane) {
  const uint64_t bytes = static_cast<uint64_t>(request.site.bytes), room = request.view.bytes;
  const uint64_t offset = request.offset + static_cast<uint64_t>(lane) * bytes;
  bool out = offset > room || room - offset < bytes;
  for (int d = 0; d < request.rank; ++d) {
    const int64_t index = request.index[d] + (d == request.rank - 1 ? lane : 0);
    out |= index < 0 || index >= request.size[d];
  }
  return out;
}

void Worker::check_lanes(const Request &request) {
  const DittoSite &s = request.site;
  const View &view = request.view;
  const uint64_t bytes = static_cast<uint64_t>(s.bytes);
  const uint64_t active = s.masked ? mask : s.lanes >= 64 ? ~uint64_t{0} : (uint64_t{1} << s.lanes) - 1;
  if (!active) return;
  const int lowest = __builtin_ctzll(active), highest = s.masked ? 63 - __builtin_clzll(active) : s.lanes - 1;
  if (outside(request, lowest) || outside(request, highest)) {
    int lane = lowest;
    while (!outside(request, lane)) ++lane;
    out_of_bounds(request, request.offset + static_cast<uint64_t>(lane) * bytes);
    leave();
  }
  if ((view.base + request.offset) & (static_cast<uint64_t>(s.align) - 1)) {
    fail(&Worker::misaligned_text, request, request.offset);
  }
  if (view.buffer->flags & (kReadOnly | kPrivate)) {
    if (s.kind == kLoad || view.buffer->flags & kPrivate) return;
    fail(&Worker::read_only_text, request, request.offset + static_cast<uint64_t>(lowest) * bytes);
  }
  if (!s.masked) return check_shadow(request, request.offset, bytes * static_cast<uint64_t>(s.lanes));
  for (int lane = lowest; lane <= highest; ++lane) {
    if (active >> lane & 1) check_shadow(request, request.offset + static_cast<uint64_t>(lane) * bytes, bytes);
  }
}

void Worker::check_shadow(const Request &request, uint64_t offset, uint64_t bytes) {
  const int unit = __builtin_ctz(static_cast<uint32_t>(request.view.buffer->unit));  // all sizes are powers of two
  const bool shared = request.view.buffer->flags & kShared;
  const bool locked = !shared && launch_.worker_count > 1;
  const int32_t kind = request.site.kind;
  for (uint64_t i = offset >> unit; i <= (offset + bytes - 1) >> unit; ++i) {
    Shadow &shadow = request.view.shadow[i];
    if (shared) {
      shadow.forget_other_block(block_);
      if (kind != kStore && !shadow.written()) uninitialised(request, i << unit);
    }
    Shadow::Other other;
    if (locked) shadow.lock();
    const bool races = shadow.touch(kind, block_, epoch_, current_, other);
    if (locked) shadow.unlock();
    if (races) {
      race(request, i << unit, other);
      leave();
    }
  }
}

// --- Running a launch ------------------------------------------------------------------------------

void Launch::start() {
  // Signals stay with Python's threads, whose handlers expect more stack, except for those that say where
  // this thread crashed.
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (const int crash : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigdelset(&blocked, crash);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  try {
    pool.reserve(static_cast<size_t>(worker_count));
    for (int32_t w = 0; w < worker_count; ++w) {
      const std::lock_guard<std::mutex> hold(mutex);
      pool.emplace_back(&Launch::work, this);
      ++running;
    }
  } catch (const std::exception &e) {  // fewer workers do as well
    if (pool.empty()) report(kNoResources, std::string("cannot start a thread: ") + e.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Launch::work() noexcept {
  try {
    Worker worker(*this);
    while (!stop.load(std::memory_order_relaxed)) {
      const int64_t block = next.fetch_add(1, std::memory_order_relaxed);
      if (block >= blocks) break;
      worker.run_block(block);
    }
  } catch (const std::bad_alloc &) {
    report(kNoResources, "out of memory");
  }
  const std::lock_guard<std::mutex> hold(mutex);
  --running;
  finished.notify_all();
}

Worker *worker_of(int64_t context) { return reinterpret_cast<Worker *>(context); }

}  // namespace

// ---------------------------------------------------------------------------------------------------
// What Python calls.

DITTO_EXPORT int32_t ditto_simt_version() { return kVersion; }

// Null when there is no memory for it.
DITTO_EXPORT void *ditto_simt_create(const DittoLaunch *config) {
  try {
    return new Launch(*config);
  } catch (const std::bad_alloc &) {
    return nullptr;
  }
}

DITTO_EXPORT void ditto_simt_run(void *launch) { static_cast<Launch *>(launch)->start(); }

// 1 when the launch is over, 0 after `milliseconds` if it is not.
DITTO_EXPORT int32_t ditto_simt_wait(void *handle, int32_t milliseconds) {
  auto *const launch = static_cast<Launch *>(handle);
  std::unique_lock<std::mutex> hold(launch->mutex);
  return launch->finished.wait_for(hold, std::chrono::milliseconds(milliseconds), [=] { return launch->running == 0; });
}

DITTO_EXPORT int32_t ditto_simt_status(void *handle, const char **message) {
  auto *const launch = static_cast<Launch *>(handle);
  const std::lock_guard<std::mutex> hold(launch->mutex);
  *message = launch->message.c_str();
  return launch->status;
}

// Stops the launch if it still runs.
DITTO_EXPORT void ditto_simt_destroy(void *launch) { delete static_cast<Launch *>(launch); }

// ---------------------------------------------------------------------------------------------------
// What kernels call.

// An atomic on bfloat16 rounds with this function where the processor has no instruction for it, and libgcc
// has it only since GCC 13.  The result is in the low half of a vector register, as that of a float is.
DITTO_EXPORT float ditto_simt_truncate(float value) __asm__("__truncsfbf2");

float ditto_simt_truncate(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    bits |= 0x400000u;  // a NaN stays one
  } else {
    bits += 0x7fffu + (bits >> 16 & 1u);  // to nearest, ties to even
  }
  bits >>= 16;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct DittoShuffled {
  int64_t value, valid;
};

DITTO_EXPORT void ditto_simt_barrier(int64_t context, int32_t site) { worker_of(context)->wait(State::kAtBarrier, site); }

DITTO_EXPORT DittoShuffled ditto_simt_shuffle(int64_t context, int32_t site, int32_t mode, int64_t value, int32_t offset,
                                              int32_t width) {
  bool valid = false;
  const int64_t result = worker_of(context)->shuffle(site, mode, value, offset, width, valid);
  return {result, valid};
}

DITTO_EXPORT void ditto_simt_divisor(int64_t context, int32_t site, int32_t is_zero) {
  if (is_zero) worker_of(context)->divide_by_zero(site);
}

DITTO_EXPORT void ditto_simt_mask(int64_t context, int64_t lanes) { worker_of(context)->mask = static_cast<uint64_t>(lanes); }

DITTO_EXPORT void ditto_simt_access0(int64_t context, int32_t site, int64_t pointer, int64_t linear) {
  worker_of(context)->access<0>(site, static_cast<uintptr_t>(pointer), linear, nullptr, nullptr);
}

DITTO_EXPORT void ditto_simt_access1(int64_t context, int32_t site, int64_t pointer, int64_t linear, int64_t i, int64_t n) {
  worker_of(context)->access<1>(site, static_cast<uintptr_t>(pointer), linear, &i, &n);
}

DITTO_EXPORT void ditto_simt_access2(int64_t context, int32_t site, int64_t pointer, int64_t linear, int64_t i, int64_t n,
                                     int64_t i1, int64_t n1) {
  const int64_t index[] = {i, i1}, size[] = {n, n1};
  worker_of(context)->access<2>(site, static_cast<uintptr_t>(pointer), linear, index, size);
}

DITTO_EXPORT void ditto_simt_access3(int64_t context, int32_t site, int64_t pointer, int64_t linear, int64_t i, int64_t n,
                                     int64_t i1, int64_t n1, int64_t i2, int64_t n2) {
  const int64_t index[] = {i, i1, i2}, size[] = {n, n1, n2};
  worker_of(context)->access<3>(site, static_cast<uintptr_t>(pointer), linear, index, size);
}

DITTO_EXPORT void ditto_simt_access4(int64_t context, int32_t site, int64_t pointer, int64_t linear, int64_t i, int64_t n,
                                     int64_t i1, int64_t n1, int64_t i2, int64_t n2, int64_t i3, int64_t n3) {
  const int64_t index[] = {i, i1, i2, i3}, size[] = {n, n1, n2, n3};
  worker_of(context)->access<4>(site, static_cast<uintptr_t>(pointer), linear, index, size);
}
