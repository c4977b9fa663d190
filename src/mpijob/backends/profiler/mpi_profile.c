/* What a rank does with MPI, counted from inside it: preloaded into the rank (LD_PRELOAD), it stands between the program
 * and the MPI library. Time and calls by function, bytes and messages by peer, time spent waiting for each peer.
 *
 * One binary serves every MPI: no mpi.h is used. A handle is an int with MPICH and Intel MPI, a pointer with Open MPI and
 * with the ABI of MPI 5; either travels unchanged in a register or stack slot of 64 bits on x86-64 and aarch64, so all
 * are `H` here, and what their values mean is asked of the library itself. Fortran needs no wrappers: the bindings of
 * MPICH and Intel MPI call MPI_Send, those of Open MPI call PMPI_Send, and both names are taken here.
 *
 * It is linked to nothing (-nostdlib): whichever C library the process has gives it the few functions it needs.
 *
 * The counters lie in a file that is mapped and shared, so that what was counted outlives a rank that is killed. Its
 * layout is read by observation/metrics/mpi_profile_file.py: change both, and VERSION. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "only for x86-64 and aarch64: see how handles are passed"
#endif
#define VERSION 1
#define BULK (64 * 1024) /* bytes: a message of this size tells the bandwidth, */
#define SMALL 1024       /* and one of this size the latency */
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define APART __attribute__((noinline)) /* one copy: there are some 450 callers */

#pragma weak dlsym
#pragma weak dlopen
#pragma weak dladdr

typedef void *H; /* a handle of any ABI, or any other word */
enum family { MPICH, OPENMPI, STANDARD };
enum kind { SETUP, POINT_TO_POINT, WAITING, COLLECTIVE, ONE_SIDED, FILES, COMMUNICATORS };

/* -- the file ------------------------------------------------------------------------------------------------- */
struct header {
  char magic[8];
  uint32_t version, header_size;
  uint32_t rank, world;
  uint32_t functions, groups, peers, members; /* how many of each follow, in this order */
  uint64_t ticks_per_second;
  uint64_t started_ns, started; /* when MPI_Init returned: of the clock, and in ticks */
  uint64_t last, ended;         /* ticks: the end of the last call, the beginning of MPI_Finalize (or 0) */
  uint64_t paused, paused_since;
  uint32_t threads; /* whether several threads may call MPI at once */
  uint32_t family;
  uint32_t current; /* the number of the function that is being called, from 1; 0 outside of MPI */
  int32_t current_peer;
  uint64_t current_since;
  uint64_t small_calls, small_ticks; /* blocking messages of at most SMALL bytes */
  uint64_t unattributed;             /* bytes sent whose receiver is not known */
  uint64_t pid, spawned, aborted;
  char library[128];
};
struct function {
  char name[32];
  uint64_t kind, calls, ticks, bytes;
};
struct group { /* what a rank sent to all members of a communicator alike */
  uint64_t bytes, messages;
  uint32_t size, first, is_world, unused; /* members are ranks first … first + size, or all of them */
};
struct peer {
  uint64_t bytes, messages;                       /* sent by the program's own calls */
  uint64_t collective_bytes, collective_messages; /* sent in collective calls */
  uint64_t put_bytes, puts, got_bytes, gets;      /* one-sided */
  uint64_t waited;                                /* ticks in calls that wait for this peer */
  uint64_t bulk_bytes, bulk_ticks, best;          /* of large messages; the fewest ticks that a MiB took */
};
_Static_assert(sizeof(struct header) == 296 && sizeof(struct function) == 64, "as mpi_profile_file.py reads it");
_Static_assert(sizeof(struct group) == 32 && sizeof(struct peer) == 96, "as mpi_profile_file.py reads it");
enum { GROUPS = 64, MEMBERS = 8192, COMMS = 512, REQUESTS = 16384, WAYS = 8, MANY = 256 };

static struct header *file;
static struct function *functions;
static struct group *groups;
static struct peer *peers;
static int32_t *members;
static uint32_t members_used;

/* -- what is known of this process -------------------------------------------------------------------------------- */
static struct { /* in a page that is zero in a forked child: it would count into its parent's file */
  volatile int counting, alive;
} *active;
static int several_threads;
static enum family family;
static void *library;
static H world_comm, world_group, no_request;
static void *in_place, *ignored; /* MPI_IN_PLACE, MPI_STATUS_IGNORE */
static int world_size, world_rank;
static __thread char *inside; /* where the stack stood as MPI was entered: calls from within it are MPI's own */
static int locked;

static void lock(void) {
  while (__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE))
    ;
}
static void unlock(void) { __atomic_store_n(&locked, 0, __ATOMIC_RELEASE); }

static inline void add(uint64_t *to, uint64_t amount) {
  if (several_threads)
    __atomic_fetch_add(to, amount, __ATOMIC_RELAXED);
  else
    *to += amount;
}

/* -- time ----------------------------------------------------------------------------------------------------- */
static int by_clock; /* where the processor's counter is not to be trusted */

static uint64_t clock_ns(clockid_t which) {
  struct timespec now = {0, 0};
  clock_gettime(which, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t ticks(void) {
  if (by_clock)
    return clock_ns(CLOCK_MONOTONIC);
#ifdef __x86_64__
  return __builtin_ia32_rdtsc();
#else
  uint64_t value;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#endif
}

static void choose_clock(void) { /* the kernel has measured whether the counter runs evenly */
  char source[16] = {0};
  int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return;
  if (read(fd, source, sizeof source - 1) > 0)
    by_clock = source[0] == 'h' && source[1] == 'p'; /* hpet */
  by_clock |= source[0] == 'a' && source[1] == 'c' && source[2] == 'p'; /* acpi_pm */
  close(fd);
}

/* -- the MPI library ------------------------------------------------------------------------------------------------ */
static int is_ours(void *function) {
  Dl_info here, there;
  return !function || (dladdr((void *)is_ours, &here) && dladdr(function, &there) && here.dli_fbase == there.dli_fbase);
}

static void *opened(void *symbol) {
  Dl_info about;
  return dladdr(symbol, &about) ? dlopen(about.dli_fname, RTLD_NOLOAD | RTLD_LAZY) : 0;
}

/* The library that the caller would have called without us: of the whole program, or the one that the caller itself is
 * linked to (Python loads its modules, and what they need, for themselves alone). */
static void *find_library(void *caller) {
  void *found = dlsym(RTLD_NEXT, "PMPI_Init"), *object;
  if (is_ours(found)) {
    object = opened(caller);
    found = object ? dlsym(object, "PMPI_Init") : 0;
  }
  return is_ours(found) ? 0 : opened(found);
}

static void *resolve(const char *name, void *caller) {
  if (!dlsym || !dlopen || !dladdr)
    return 0;
  if (!library)
    library = find_library(caller);
  return library ? dlsym(library, name) : 0;
}

static int missing(void) { return family == OPENMPI ? 16 : 15; } /* MPI_ERR_OTHER: the library has no such function */

/* -- functions that the library does not have ------------------------------------------------------------------------
 * mpi4py names functions of MPI 4 weakly, and does without those whose address is 0. With us before the library all of
 * them are there. So the addresses of those that the library lacks are taken out of an object again, as soon as it makes
 * its first call. */
#ifdef __x86_64__
enum { SLOT_DATA = R_X86_64_GLOB_DAT, SLOT_CALL = R_X86_64_JUMP_SLOT, SLOT_WORD = R_X86_64_64 };
#else
enum { SLOT_DATA = R_AARCH64_GLOB_DAT, SLOT_CALL = R_AARCH64_JUMP_SLOT, SLOT_WORD = R_AARCH64_ABS64 };
#endif
struct object {
  uintptr_t base, relro, relro_end;
  const ElfW(Sym) * symbols;
  const char *strings;
  const ElfW(Rela) * slots[2];
  size_t sizes[2];
};
static uintptr_t restored[64]; /* where the objects are that were seen to */

static uintptr_t within(uintptr_t base, uintptr_t address) { /* not every C library has added the base */
  return address < base ? base + address : address;
}

static int read_object(struct dl_phdr_info *info, size_t size, void *wanted) {
  struct object *object = wanted;
  (void)size;
  if (info->dlpi_addr != object->base)
    return 0;
  for (int at = 0; at < info->dlpi_phnum; at++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[at];
    if (part->p_type == PT_GNU_RELRO) {
      object->relro = object->base + part->p_vaddr;
      object->relro_end = object->relro + part->p_memsz;
    }
    if (part->p_type != PT_DYNAMIC)
      continue;
    for (const ElfW(Dyn) *entry = (void *)(object->base + part->p_vaddr); entry->d_tag != DT_NULL; entry++) {
      uintptr_t address = within(object->base, entry->d_un.d_ptr);
      switch (entry->d_tag) {
        case DT_SYMTAB: object->symbols = (void *)address; break;
        case DT_STRTAB: object->strings = (void *)address; break;
        case DT_RELA: object->slots[0] = (void *)address; break;
        case DT_RELASZ: object->sizes[0] = entry->d_un.d_val; break;
        case DT_JMPREL: object->slots[1] = (void *)address; break;
        case DT_PLTRELSZ: object->sizes[1] = entry->d_un.d_val; break;
        default: break;
      }
    }
  }
  return 1;
}

static int starts_with(const char *text, const char *beginning) {
  while (*beginning)
    if (*text++ != *beginning++)
      return 0;
  return 1;
}

static void empty_slot(const struct object *object, uintptr_t *slot) {
  uintptr_t page = (uintptr_t)slot & ~(uintptr_t)4095;
  if ((uintptr_t)slot < object->relro || (uintptr_t)slot >= object->relro_end) {
    *slot = 0;
  } else if (!mprotect((void *)page, 4096, PROT_READ | PROT_WRITE)) {
    *slot = 0;
    mprotect((void *)page, 4096, PROT_READ);
  }
}

static void restore(void *caller) {
  Dl_info about;
  struct object object = {0};
  if (!library || !dladdr(caller, &about))
    return;
  object.base = (uintptr_t)about.dli_fbase;
  for (int at = 0; at < 64; at++) {
    if (restored[at] == object.base)
      return;
    if (!restored[at]) {
      restored[at] = object.base;
      break;
    }
  }
  if (!dl_iterate_phdr(read_object, &object) || !object.symbols || !object.strings)
    return;
  for (int part = 0; part < 2; part++)
    for (size_t at = 0; object.slots[part] && at < object.sizes[part] / sizeof(ElfW(Rela)); at++) {
      const ElfW(Rela) *slot = &object.slots[part][at];
      const ElfW(Sym) *symbol = &object.symbols[ELF64_R_SYM(slot->r_info)];
      const char *name = object.strings + symbol->st_name;
      int kind = (int)ELF64_R_TYPE(slot->r_info);
      if ((kind == SLOT_DATA || kind == SLOT_CALL || kind == SLOT_WORD) && ELF64_ST_BIND(symbol->st_info) == STB_WEAK
          && starts_with(name, "MPI_") && is_ours(*(void **)(object.base + slot->r_offset)) && !dlsym(library, name))
        empty_slot(&object, (uintptr_t *)(object.base + slot->r_offset));
    }
}

#define ASK(name, ...)                                                      \
  static int (*ask_##name)(__VA_ARGS__);                                    \
  if (!ask_##name)                                                          \
    ask_##name = (int (*)(__VA_ARGS__))resolve("PMPI_" #name, (void *)missing); \
  if (!ask_##name)                                                          \
    ask_##name = (int (*)(__VA_ARGS__))(void *)missing

/* An executable may hold a copy of the library's variable, which then is the one that all use. */
static void *variable(const char *name) {
  void *found = dlsym(RTLD_DEFAULT, name);
  return found ? found : dlsym(library, name);
}

static int is_null(H handle, uint32_t of_mpich, uintptr_t standard, const char *of_openmpi) {
  if (family == MPICH)
    return (uint32_t)(uintptr_t)handle == of_mpich;
  if (family == STANDARD)
    return (uintptr_t)handle == standard;
  return handle == variable(of_openmpi);
}

static int same_text(const char *text, const char *part) { /* whether `part` is somewhere in `text` */
  for (; *text; text++) {
    size_t at = 0;
    while (part[at] && text[at] == part[at])
      at++;
    if (!part[at])
      return 1;
  }
  return 0;
}

static void learn_family(void) {
  Dl_info about;
  void *comm = dlsym(library, "ompi_mpi_comm_world") ? variable("ompi_mpi_comm_world") : 0;
  family = comm ? OPENMPI : MPICH;
  if (!comm && dladdr(dlsym(library, "PMPI_Init"), &about) && same_text(about.dli_fname, "libmpi_abi"))
    family = STANDARD;
  world_comm = family == OPENMPI ? comm : (H)(uintptr_t)(family == STANDARD ? 0x101 : 0x44000000);
  no_request = family == OPENMPI ? variable("ompi_request_null") : (H)(uintptr_t)(family == STANDARD ? 0x180 : 0x2c000000);
  in_place = (void *)(family == MPICH ? -1l : 1l);
  ignored = (void *)(family == MPICH ? 1l : 0l);
}

static inline uintptr_t plain(H handle) { /* the upper half of an int's register is nobody's */
  return family == MPICH ? (uint32_t)(uintptr_t)handle : (uintptr_t)handle;
}

static inline H handle_at(const void *array, int index) {
  return family == MPICH ? (H)(uintptr_t)((const uint32_t *)array)[index] : ((H const *)array)[index];
}

/* -- sizes of types ----------------------------------------------------------------------------------------------- */
static int types_freed; /* a freed handle may come back as another type */
static __thread struct {
  uintptr_t type;
  int size, freed;
} sizes[8];

APART static int64_t size_of(H type) {
  uintptr_t key = plain(type);
  if (family == MPICH && (key & 0xc0000000u) == 0x40000000u)
    return (key >> 8) & 0xff; /* the handle of a basic type holds its size */
  unsigned at = (key >> 4 ^ key) & 7;
  if (sizes[at].type != key || sizes[at].freed != types_freed) {
    ASK(Type_size, H, int *);
    int size = 0;
    if (ask_Type_size(type, &size))
      return 0;
    sizes[at].type = key, sizes[at].size = size, sizes[at].freed = types_freed;
  }
  return sizes[at].size > 0 ? sizes[at].size : 0;
}

APART static uint64_t bytes_of(int64_t count, H type) { return count > 0 ? (uint64_t)(count * size_of(type)) : 0; }

/* -- communicators and windows: whose rank is whose ------------------------------------------------------------------ */
struct comm {
  uintptr_t key;
  int32_t *ranks; /* of the world, -1 for a process of another one; none where they are the world's own */
  int size, rank, slot, inter;
};
#define GRAVE 1 /* the key of one that was freed: others may lie behind it */
static struct comm comms[COMMS], of_world;
static int comms_used;

static void translate(H group, struct comm *comm) {
  ASK(Group_size, H, int *);
  ASK(Group_translate_ranks, H, int, const int *, H, int *);
  int size = 0;
  if (ask_Group_size(group, &size) || size <= 0)
    return;
  int *ranks = malloc(2 * sizeof(int) * (size_t)size), *own = ranks + size, is_world = size == world_size;
  if (!ranks)
    return;
  for (int at = 0; at < size; at++)
    own[at] = at;
  int wrong = ask_Group_translate_ranks(group, size, own, world_group, ranks);
  for (int at = 0; at < size; at++) {
    if (wrong || ranks[at] < 0 || ranks[at] >= world_size)
      ranks[at] = -1;
    is_world &= ranks[at] == at;
  }
  if (is_world)
    free(ranks);
  comm->ranks = is_world ? 0 : ranks;
  comm->size = size;
}

static void take_slot(struct comm *comm) {
  if (comm->inter || comm->size <= 0 || (comm->ranks && members_used + (uint32_t)comm->size > MEMBERS))
    return;
  for (int at = 0; at < GROUPS; at++) {
    if (groups[at].size)
      continue;
    if (comm->ranks) {
      for (int i = 0; i < comm->size; i++)
        members[members_used + (uint32_t)i] = comm->ranks[i];
      groups[at].first = members_used;
      members_used += (uint32_t)comm->size;
    }
    groups[at].is_world = !comm->ranks;
    groups[at].size = (uint32_t)comm->size;
    comm->slot = at;
    return;
  }
}

static void describe_comm(H handle, struct comm *comm) {
  ASK(Comm_test_inter, H, int *);
  ASK(Comm_group, H, H *);
  ASK(Comm_remote_group, H, H *);
  ASK(Comm_rank, H, int *);
  ASK(Group_free, H *);
  H group = 0;
  if (ask_Comm_test_inter(handle, &comm->inter) || ask_Comm_rank(handle, &comm->rank))
    return;
  if ((comm->inter ? ask_Comm_remote_group : ask_Comm_group)(handle, &group))
    return;
  translate(group, comm);
  ask_Group_free(&group);
}

static void describe_window(H handle, struct comm *comm) {
  ASK(Win_get_group, H, H *);
  ASK(Group_free, H *);
  H group = 0;
  if (ask_Win_get_group(handle, &group))
    return;
  translate(group, comm);
  ask_Group_free(&group);
}

static inline unsigned place_of(uintptr_t key) { return (unsigned)((key ^ key >> 7 ^ key >> 16) % COMMS); }

static struct comm *found_in(H handle, void (*describe)(H, struct comm *)) {
  uintptr_t key = plain(handle);
  unsigned at = place_of(key);
  for (unsigned step = 0; step < COMMS; step++, at = (at + 1) % COMMS) {
    uintptr_t there = __atomic_load_n(&comms[at].key, __ATOMIC_ACQUIRE);
    if (there == key)
      return &comms[at];
    if (!there)
      break;
  }
  if (!describe || comms_used > COMMS - COMMS / 4)
    return 0;
  struct comm fresh = {0, 0, 0, -1, -1, 0};
  describe(handle, &fresh);
  lock();
  at = place_of(key);
  while (comms[at].key && comms[at].key != GRAVE && comms[at].key != key)
    at = (at + 1) % COMMS;
  if (comms[at].key != key) {
    comms_used += !comms[at].key;
    fresh.key = GRAVE;
    if (describe == describe_comm)
      take_slot(&fresh);
    comms[at] = fresh;
    __atomic_store_n(&comms[at].key, key, __ATOMIC_RELEASE);
  } else {
    free(fresh.ranks); /* another thread was faster */
  }
  unlock();
  return &comms[at];
}

static inline struct comm *of_comm(H comm) {
  return LIKELY(plain(comm) == (uintptr_t)world_comm) ? &of_world : found_in(comm, describe_comm);
}

static inline int world_rank_in(const struct comm *comm, int rank) {
  if (!comm || rank < 0 || rank >= comm->size)
    return -1;
  return comm->ranks ? comm->ranks[rank] : rank;
}
APART static int peer_in(H comm, int rank) { return rank < 0 ? -1 : world_rank_in(of_comm(comm), rank); }
APART static int peer_of_window(H window, int rank) {
  return rank < 0 ? -1 : world_rank_in(found_in(window, describe_window), rank);
}

static void forget_comm(H handle) { /* its handle may come back as another communicator */
  struct comm *comm = found_in(handle, 0);
  if (!comm)
    return;
  if (comm->slot >= 0) {
    struct group *group = &groups[comm->slot];
    for (int at = 0; at < comm->size; at++) {
      int rank = world_rank_in(comm, at);
      if (rank >= 0 && rank != world_rank) {
        add(&peers[rank].collective_bytes, group->bytes);
        add(&peers[rank].collective_messages, group->messages);
      }
    }
    if (comm->ranks && groups[comm->slot].first + (uint32_t)comm->size == members_used)
      members_used -= (uint32_t)comm->size;
    group->bytes = group->messages = 0, group->size = 0;
  }
  free(comm->ranks);
  comm->ranks = 0;
  __atomic_store_n(&comm->key, GRAVE, __ATOMIC_RELEASE);
  if (several_threads) /* another one may be looking */
    return;
  unsigned at = (unsigned)(comm - comms);
  while (comms[at].key == GRAVE && !comms[(at + 1) % COMMS].key) { /* nothing lies behind it */
    comms[at].key = 0;
    comms_used--;
    at = (at + COMMS - 1) % COMMS;
  }
}

/* -- counting ------------------------------------------------------------------------------------------------------ */
APART static void sent(int peer, uint64_t bytes) {
  if (peer < 0) {
    add(&file->unattributed, bytes);
    return;
  }
  add(&peers[peer].bytes, bytes);
  add(&peers[peer].messages, 1);
}

APART static void waited(int peer, uint64_t time) {
  if (peer >= 0)
    add(&peers[peer].waited, time);
}

APART static void timed(int peer, uint64_t bytes, uint64_t time) { /* one blocking message, for latency and bandwidth */
  if (peer < 0 || peer == world_rank)
    return;
  if (bytes <= SMALL) {
    add(&file->small_calls, 1);
    add(&file->small_ticks, time);
  } else if (bytes >= BULK) {
    uint64_t per_mib = (uint64_t)((double)time * 1048576 / (double)bytes);
    add(&peers[peer].bulk_bytes, bytes);
    add(&peers[peer].bulk_ticks, time);
    if (!peers[peer].best || per_mib < peers[peer].best)
      peers[peer].best = per_mib;
  }
}

APART static void to_one(H handle, int rank, uint64_t bytes) {
  struct comm *comm = of_comm(handle);
  int peer = comm && !comm->inter ? world_rank_in(comm, rank) : -1;
  if (peer < 0) {
    add(&file->unattributed, bytes);
  } else if (peer != world_rank) {
    add(&peers[peer].collective_bytes, bytes);
    add(&peers[peer].collective_messages, 1);
  }
}

APART static void to_all(H handle, uint64_t bytes) {
  struct comm *comm = of_comm(handle);
  if (!comm || comm->inter || comm->size <= 0) {
    add(&file->unattributed, bytes);
  } else if (comm->slot >= 0) {
    add(&groups[comm->slot].bytes, bytes);
    add(&groups[comm->slot].messages, 1);
  } else {
    for (int rank = 0; rank < comm->size; rank++)
      to_one(handle, rank, bytes);
  }
}

APART static int size_in(H handle) {
  struct comm *comm = of_comm(handle);
  return comm ? comm->size : 0;
}
APART static int rank_in(H handle) {
  struct comm *comm = of_comm(handle);
  return comm && !comm->inter ? comm->rank : -1;
}
APART static uint64_t share_of(H handle, uint64_t bytes) {
  struct comm *comm = of_comm(handle);
  return comm && comm->size > 0 ? bytes / (uint64_t)comm->size : 0;
}

static int next_rank(H handle) { /* a scan goes from one rank to the next */
  int next = rank_in(handle) + 1;
  return next > 0 && next < size_in(handle) ? next : -1;
}

APART static void got(int peer, uint64_t bytes) {
  if (peer >= 0) {
    add(&peers[peer].got_bytes, bytes);
    add(&peers[peer].gets, 1);
  }
}
APART static void put(int peer, uint64_t bytes) {
  if (peer >= 0) {
    add(&peers[peer].put_bytes, bytes);
    add(&peers[peer].puts, 1);
  } else {
    add(&file->unattributed, bytes);
  }
}

/* -- requests: which peer a wait waits for, and what a persistent one sends each time -------------------------------- */
enum use { ONCE, SENDS, RECEIVES, SENDS_ALL, SENDS_ONE };
struct request {
  uintptr_t key;
  H comm;
  int32_t peer;
  uint32_t use;
  uint64_t bytes;
};
static struct request *requests;

static struct request *request_of(H handle) {
  uintptr_t key = plain(handle);
  struct request *bucket = requests + (key ^ key >> 9 ^ key >> 19) % (REQUESTS / WAYS) * WAYS;
  for (int way = 0; way < WAYS; way++)
    if (bucket[way].key == key)
      return &bucket[way];
  return 0;
}

static void remember(H handle, int peer, enum use use, H comm, uint64_t bytes) {
  uintptr_t key = plain(handle);
  struct request *bucket = requests + (key ^ key >> 9 ^ key >> 19) % (REQUESTS / WAYS) * WAYS, *place = 0;
  if (key == plain(no_request))
    return;
  if (several_threads)
    lock();
  for (int way = 0; way < WAYS && (!place || place->key != key); way++)
    if (bucket[way].key == key || (!place && !bucket[way].key))
      place = &bucket[way];
  if (!place)
    place = &bucket[key >> 3 & (WAYS - 1)]; /* the bucket is full: one of them is forgotten */
  *place = (struct request){key, comm, peer, use, bytes};
  if (several_threads)
    unlock();
}

APART static void remember_at(void *where, int peer, enum use use, H comm, uint64_t bytes) {
  remember(handle_at(where, 0), peer, use, comm, bytes);
}

APART static void forget_at(void *where) { /* a request that is none of ours may have the number of one that was */
  struct request *request = request_of(handle_at(where, 0));
  if (request)
    request->key = 0;
}

static int forgotten(void *where) {
  forget_at(where);
  return -1;
}

APART static int completed(H handle) { /* returns whom it was about */
  struct request *request = request_of(handle);
  if (!request)
    return -1;
  if (request->use == ONCE)
    request->key = 0;
  return request->peer;
}

static void started(H handle) {
  struct request *request = request_of(handle);
  if (!request)
    return;
  switch (request->use) {
    case SENDS: sent(request->peer, request->bytes); break;
    case SENDS_ALL: to_all(request->comm, request->bytes); break;
    case SENDS_ONE: to_one(request->comm, request->peer, request->bytes); break;
    default: break;
  }
}

APART static void waited_for_some(const int *who, int count, uint64_t time) { /* the time is divided among them */
  int known = 0;
  for (int at = 0; at < count; at++)
    known += who[at] >= 0;
  for (int at = 0; at < count; at++)
    if (who[at] >= 0)
      waited(who[at], time / (uint64_t)known);
}

static __thread H noted[MANY]; /* the requests of a call that will null those that it completes */
static __thread int noted_count, whom[MANY], whom_count;

static int note(int count, const void *array) {
  noted_count = count < MANY ? count : MANY;
  for (int at = 0; at < noted_count; at++)
    noted[at] = handle_at(array, at);
  return -1;
}
static int done(int index) { return index >= 0 && index < noted_count ? completed(noted[index]) : -1; }
static int some_done(int count, const int *indices) {
  whom_count = 0;
  for (int at = 0; at < count && at < MANY; at++)
    whom[whom_count++] = done(indices[at]);
  return whom_count;
}
static int all_of(int count, const void *array) {
  whom_count = count < MANY ? count : MANY;
  for (int at = 0; at < count; at++) {
    int peer = completed(handle_at(array, at));
    if (at < MANY)
      whom[at] = peer;
  }
  return count == 1 ? whom[0] : -1;
}

static __thread int statuses[16]; /* large enough for any MPI's */
static int source_of(const int *status) { return family == MPICH ? status[2] : status[0]; }
static void *own_status(void **status) {
  if (*status == ignored)
    *status = statuses;
  return *status;
}
static uint64_t received(void *status, int64_t count, H type) { /* at most what there was room for */
  uint64_t bytes = bytes_of(count, type);
  int number = 0;
  ASK(Get_count, const void *, H, int *);
  if (bytes <= SMALL || ask_Get_count(status, type, &number) || number < 0)
    return bytes;
  return bytes_of(number, type);
}

#define MOVED(number, amount) add(&functions[number].bytes, amount)

APART static void flowed(int number, H comm, enum use use, int to, uint64_t bytes) { /* in a collective call */
  if (use == ONCE)
    return;
  if (use == SENDS_ALL)
    to_all(comm, bytes);
  else
    to_one(comm, to, bytes);
  MOVED(number, use == SENDS_ALL ? bytes * (uint64_t)(size_in(comm) > 0 ? size_in(comm) - 1 : 0) : bytes);
}
APART static void remember_flow(void *request, H comm, enum use use, int to, uint64_t bytes) {
  if (use == ONCE)
    forget_at(request);
  else
    remember_at(request, to, use, comm, bytes);
}

/* -- around each call ------------------------------------------------------------------------------------------------ */
#define NOT_COUNTED() (!active || !active->counting || (inside && (char *)__builtin_frame_address(0) < inside))

APART static uint64_t entered(int number, int peer) {
  uint64_t now = ticks();
  file->current_peer = peer;
  file->current_since = now;
  file->current = (uint32_t)number + 1;
  return now;
}

APART static uint64_t left(int number, uint64_t since) {
  uint64_t now = ticks();
  file->last = now;
  file->current = 0;
  add(&functions[number].calls, 1);
  add(&functions[number].ticks, now - since);
  return now - since;
}

enum number {
#define CALL(name, kind, params, args, peer, ...) F_##name,
#define TIMED(name, kind, arity) F_##name,
#define SPECIAL(name, kind) F_##name,
#include "mpi_calls.h"
  FUNCTIONS
};
static const struct { /* no pointers: each would have to be relocated in every process */
  char name[32];
  uint32_t kind;
} known[FUNCTIONS] = {
#define CALL(name, kind, params, args, peer, ...) {"MPI_" #name, kind},
#define TIMED(name, kind, arity) {"MPI_" #name, kind},
#define SPECIAL(name, kind) {"MPI_" #name, kind},
#include "mpi_calls.h"
};

static void *reals[FUNCTIONS];

APART static void *real_function(int number, void *caller) {
  char name[40] = "P", *at = name + 1;
  for (const char *from = known[number].name; *from;)
    *at++ = *from++;
  *at = 0;
  void *found = resolve(name, caller);
  restore(caller);
  return reals[number] = found ? found : (void *)missing;
}

/* -- beginning and end ----------------------------------------------------------------------------------------------- */
static uint64_t rate_ticks, rate_ns;

static char *text_into(char *at, char *end, const char *text) {
  while (*text && at < end - 1)
    *at++ = *text++;
  *at = 0;
  return at;
}

static char *number_into(char *at, char *end, uint64_t value) {
  char digits[24], *digit = digits + sizeof digits - 1;
  *digit = 0;
  do
    *--digit = (char)('0' + value % 10);
  while (value /= 10);
  return text_into(at, end, digit);
}

static int new_file(const char *directory, int spawned) {
  char path[4096], *end = path + sizeof path;
  for (uint64_t again = 0; again < 1000; again++) {
    const char *step = getenv("MPIJOB_PROFILE_STEP");
    char *at = text_into(path, end, directory);
    at = text_into(at, end, "/");
    if (step && *step) {
      at = text_into(at, end, "step-");
      at = text_into(at, end, step);
      at = text_into(at, end, "-");
    }
    at = text_into(at, end, spawned ? "spawned-" : "rank-");
    at = number_into(at, end, spawned ? (uint64_t)getpid() : (uint64_t)world_rank);
    if (again) { /* a further world of the same job */
      at = text_into(at, end, ".");
      at = number_into(at, end, again + 1);
    }
    text_into(at, end, ".mpiprofile");
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 || access(path, F_OK))
      return fd;
  }
  return -1;
}

static int map_file(const char *directory, int spawned) {
  size_t size = sizeof(struct header) + FUNCTIONS * sizeof(struct function) + GROUPS * sizeof(struct group)
      + (size_t)world_size * sizeof(struct peer) + MEMBERS * sizeof(int32_t);
  int fd = new_file(directory, spawned);
  if (fd < 0)
    return 0;
  void *found = MAP_FAILED;
  if (!posix_fallocate(fd, 0, (off_t)size)) /* or a disk that fills would end the rank */
    found = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (found == MAP_FAILED)
    return 0;
  file = found;
  functions = (struct function *)(file + 1);
  groups = (struct group *)(functions + FUNCTIONS);
  peers = (struct peer *)(groups + GROUPS);
  members = (int32_t *)(peers + world_size);
  return 1;
}

static void write_header(int spawned) {
  ASK(Get_library_version, char *, int *);
  static char version[8192];
  int length = 0;
  if (!ask_Get_library_version(version, &length))
    text_into(file->library, file->library + sizeof file->library, version);
  for (int at = 0; at < FUNCTIONS; at++) {
    text_into(functions[at].name, functions[at].name + sizeof functions[at].name, known[at].name);
    functions[at].kind = known[at].kind;
  }
  file->version = VERSION, file->header_size = sizeof(struct header);
  file->rank = (uint32_t)world_rank, file->world = (uint32_t)world_size;
  file->functions = FUNCTIONS, file->groups = GROUPS, file->peers = (uint32_t)world_size, file->members = MEMBERS;
  file->threads = (uint32_t)several_threads, file->family = (uint32_t)family;
  file->pid = (uint64_t)getpid(), file->spawned = (uint64_t)spawned;
  for (int at = 0; at < 8; at++)
    file->magic[at] = "MPIJOBMP"[at]; /* last: whoever reads earlier sees no profile yet */
}

static void measure_rate(void) {
  uint64_t now = ticks() - rate_ticks, ns = clock_ns(CLOCK_MONOTONIC) - rate_ns;
  if (ns > 0)
    file->ticks_per_second = (uint64_t)((double)now * 1e9 / (double)ns);
}

static void before_start(void) {
  choose_clock();
  rate_ticks = ticks();
  rate_ns = clock_ns(CLOCK_MONOTONIC);
}

static int threads_are_several(void) {
  ASK(Query_thread, int *);
  int level = 0;
  return !ask_Query_thread(&level) && level >= 3; /* MPI_THREAD_MULTIPLE: 3, and 4096 in the ABI of MPI 5 */
}

static int was_spawned(void) {
  ASK(Comm_get_parent, H *);
  H parent = 0;
  return !ask_Comm_get_parent(&parent) && parent && !is_null(parent, 0x04000000, 0x100, "ompi_mpi_comm_null");
}

/* The world is that of MPI_COMM_WORLD, or the set of processes of that name for a program that has only sessions. */
static int learn_world(H session) {
  if (session) {
    ASK(Group_from_session_pset, H, const char *, H *);
    ASK(Group_size, H, int *);
    ASK(Group_rank, H, int *);
    return !ask_Group_from_session_pset(session, "mpi://WORLD", &world_group)
        && !ask_Group_size(world_group, &world_size) && !ask_Group_rank(world_group, &world_rank);
  }
  ASK(Comm_group, H, H *);
  ASK(Comm_size, H, int *);
  ASK(Comm_rank, H, int *);
  return !ask_Comm_group(world_comm, &world_group) && !ask_Comm_size(world_comm, &world_size)
      && !ask_Comm_rank(world_comm, &world_rank);
}

static void start(int number, uint64_t since, H session) { /* MPI_Init has returned */
  const char *directory = getenv("MPIJOB_MPI_PROFILE");
  if (file || !directory || !*directory || !library)
    return;
  learn_family();
  several_threads = session || threads_are_several();
  int spawned = !session && was_spawned();
  void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  requests = mmap(0, REQUESTS * sizeof *requests, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || (void *)requests == MAP_FAILED || !learn_world(session) || world_size < 1)
    return;
  if (!map_file(directory, spawned))
    return;
#ifdef MADV_WIPEONFORK
  madvise(page, 4096, MADV_WIPEONFORK);
#endif
  of_world = (struct comm){(uintptr_t)world_comm, 0, world_size, world_rank, 0, 0};
  groups[0].size = (uint32_t)world_size, groups[0].is_world = 1;
  measure_rate();
  file->started_ns = clock_ns(CLOCK_REALTIME);
  file->started = file->last = ticks();
  functions[number].calls = 1, functions[number].ticks = file->started - since;
  write_header(spawned);
  active = page;
  active->counting = active->alive = 1;
}

static void stop(void) { /* MPI_Finalize is about to be called */
  ASK(Group_free, H *);
  file->ended = ticks();
  if (file->paused_since)
    file->paused += file->ended - file->paused_since, file->paused_since = 0;
  measure_rate();
  ask_Group_free(&world_group);
}

#define EXPORTED __attribute__((visibility("default")))
#define BOTH(name) EXPORTED __attribute__((alias("MPI_" #name)))
#define REAL(name, params)            \
  int(*real) params = (int(*) params)reals[F_##name]; \
  if (!real)                          \
    real = (int(*) params)real_function(F_##name, __builtin_return_address(0))

/* Usually the first call of all, before MPI_Init, or where another library has called that. */
EXPORTED int MPI_Initialized(int *flag) {
  REAL(Initialized, (int *));
  restore(__builtin_return_address(0));
  return real(flag);
}
int PMPI_Initialized(int *) BOTH(Initialized);

EXPORTED int MPI_Init(int *argc, char ***argv) {
  REAL(Init, (int *, char ***));
  before_start();
  uint64_t since = ticks();
  int error = real(argc, argv);
  if (!error)
    start(F_Init, since, 0);
  return error;
}
int PMPI_Init(int *, char ***) BOTH(Init);

EXPORTED int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
  REAL(Init_thread, (int *, char ***, int, int *));
  before_start();
  uint64_t since = ticks();
  int error = real(argc, argv, required, provided);
  if (!error)
    start(F_Init_thread, since, 0);
  return error;
}
int PMPI_Init_thread(int *, char ***, int, int *) BOTH(Init_thread);

EXPORTED int MPI_Session_init(H info, H handler, void *session) {
  REAL(Session_init, (H, H, void *));
  if (!file)
    before_start();
  uint64_t since = ticks();
  int error = real(info, handler, session);
  if (!error && library && !file) {
    learn_family();
    start(F_Session_init, since, handle_at(session, 0));
  }
  return error;
}
int PMPI_Session_init(H, H, void *) BOTH(Session_init);

EXPORTED int MPI_Finalize(void) {
  REAL(Finalize, (void));
  if (NOT_COUNTED())
    return real();
  inside = (char *)__builtin_frame_address(0);
  stop();
  uint64_t since = entered(F_Finalize, -1);
  active->counting = active->alive = 0;
  int error = real();
  left(F_Finalize, since);
  inside = 0;
  return error;
}
int PMPI_Finalize(void) BOTH(Finalize);

EXPORTED int MPI_Abort(H comm, int code) {
  REAL(Abort, (H, int));
  if (!NOT_COUNTED())
    file->aborted = 1, file->last = ticks();
  inside = (char *)__builtin_frame_address(0); /* what the library calls on its way out is its own */
  return real(comm, code);
}
int PMPI_Abort(H, int) BOTH(Abort);

/* As the standard proposes: 0 switches the profile off, any other level on again. */
EXPORTED int MPI_Pcontrol(const int level, ...) {
  REAL(Pcontrol, (int, ...));
  if (active && active->alive) {
    if (!level && active->counting) {
      active->counting = 0;
      file->paused_since = ticks();
    } else if (level && file->paused_since) {
      file->paused += ticks() - file->paused_since;
      file->paused_since = 0;
      active->counting = 1;
    }
  }
  return real(level);
}
int PMPI_Pcontrol(const int, ...) BOTH(Pcontrol);

/* A handle that is freed may come back as another object, also while the profile is paused. */
#define FREES(name, forgotten)                                 \
  EXPORTED int MPI_##name(void *handle) {                      \
    REAL(name, (void *));                                      \
    if (active && active->alive && !inside)                    \
      forgotten;                                               \
    if (NOT_COUNTED())                                         \
      return real(handle);                                     \
    inside = (char *)__builtin_frame_address(0);               \
    uint64_t since = entered(F_##name, -1);                    \
    int error = real(handle);                                  \
    left(F_##name, since);                                     \
    inside = 0;                                                \
    return error;                                              \
  }                                                            \
  int PMPI_##name(void *) BOTH(name);
FREES(Comm_free, forget_comm(handle_at(handle, 0)))
FREES(Comm_disconnect, forget_comm(handle_at(handle, 0)))
FREES(Win_free, forget_comm(handle_at(handle, 0)))
FREES(Type_free, types_freed++)

/* -- every other call: what it is called with is in mpi_calls.h -------------------------------------------------------- */
#define W1 H a
#define W2 W1, H b
#define W3 W2, H c
#define W4 W3, H d
#define W5 W4, H e
#define W6 W5, H f
#define W7 W6, H g
#define W8 W7, H h
#define W9 W8, H i
#define W10 W9, H j
#define V1 a
#define V2 V1, b
#define V3 V2, c
#define V4 V3, d
#define V5 V4, e
#define V6 V5, f
#define V7 V6, g
#define V8 V7, h
#define V9 V8, i
#define V10 V9, j

#define CALL(name, kind, params, args, peer, ...)    \
  EXPORTED int MPI_##name params {                   \
    REAL(name, params);                              \
    if (NOT_COUNTED())                               \
      return real args;                              \
    inside = (char *)__builtin_frame_address(0);     \
    const int self = F_##name, who = peer;           \
    uint64_t since = entered(self, who);             \
    int error = real args;                           \
    uint64_t time = left(self, since);               \
    (void)time, (void)who;                           \
    __VA_ARGS__;                                     \
    inside = 0;                                      \
    return error;                                    \
  }                                                  \
  int PMPI_##name params BOTH(name);
#define TIMED(name, kind, arity) CALL(name, kind, (W##arity), (V##arity), -1, )
#define SPECIAL(name, kind)
#include "mpi_calls.h"
