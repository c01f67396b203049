// Records QEMU's SEV-SNP launch on a host without SEV-SNP. Loaded into QEMU before the C library.
//
// Answers the SNP requests of /dev/kvm and /dev/sev, passes all others to the host's KVM, and writes each one that
// decides the launch as a line `snp NAME NUMBERS HEX` to standard error, which is QEMU's log. No guest runs: KVM_RUN
// waits for a signal and returns EINTR. Numbers and structures are written out because the headers of Debian 12 lack
// them; test/linux/kernel-layouts.slow.test.ts compares each with the headers of the images' kernel.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
  CHECK_EXTENSION = 0xae03, CREATE_VM = 0xae01, CREATE_VCPU = 0xae41, RUN = 0xae80,
  SET_REGS = 0x4090ae82, SET_SREGS2 = 0x4140aecd, SET_MSRS = 0x4008ae89, SET_XCRS = 0x4188aea7,
  SET_DEBUGREGS = 0x4080aea2, SET_XSAVE = 0x5000aea5, ENABLE_CAP = 0x4068aea3,
  SET_MEMORY_REGION = 0x4020ae46, SET_MEMORY_REGION2 = 0x40a0ae49, SET_MEMORY_ATTRIBUTES = 0x4020aed2,
  GET_DEVICE_ATTR = 0x4018aee2, SEV_ISSUE_CMD = 0xc0105300,
};
static const uint32_t CREATE_GUEST_MEMFD = 0xc040aed4, MEMORY_ENCRYPT_OP = 0xc008aeba, GET_XSAVE = 0x9000aea4;
enum {
  CAP_EXIT_HYPERCALL = 201, CAP_USER_MEMORY2 = 231, CAP_MEMORY_ATTRIBUTES = 233, CAP_GUEST_MEMFD = 234,
  CAP_VM_TYPES = 235,
};
enum { LAUNCH_START = 100, LAUNCH_UPDATE = 101, LAUNCH_FINISH = 102, START_BYTES = 64, FINISH_BYTES = 88 };
enum { ID_BLOCK_BYTES = 96, ID_AUTH_BYTES = 4096, VCPUS_MAX = 1024, XSAVE_LEGACY_BYTES = 32 };

enum { GRP_SEV = 1, SEV_VMSA_FEATURES = 0 };

struct device_attr { uint32_t flags, group; uint64_t attr, address; };
struct sev_cmd { uint32_t id, pad; uint64_t data; uint32_t error, sev_fd; };
struct launch_update {
  uint64_t gfn, address, bytes;
  uint8_t type, pad0;
  uint16_t flags;
  uint32_t pad1;
  uint64_t pad2[4];
};

static int sev_fd = -1;
static int vcpu_fds[VCPUS_MAX], vcpu_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void put(const char *text, size_t length) {
  while (length > 0) {
    ssize_t done = syscall(SYS_write, 2, text, length);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) _exit(99);
    text += done;
    length -= done;
  }
}

/* One line: a name, numbers in hexadecimal, then the bytes. */
static void record(const char *name, const uint64_t *numbers, int count, const void *bytes, size_t length) {
  char *line = malloc(256 + 2 * length), *at = line;
  if (line == NULL) _exit(98);
  at += sprintf(at, "\nsnp %s", name);
  for (int i = 0; i < count; i++) at += sprintf(at, " %llx", (unsigned long long)numbers[i]);
  *at++ = ' ';
  for (size_t i = 0; i < length; i++) {
    uint8_t byte = ((const uint8_t *)bytes)[i];
    *at++ = "0123456789abcdef"[byte >> 4];
    *at++ = "0123456789abcdef"[byte & 15];
  }
  *at++ = '\n';
  pthread_mutex_lock(&lock);
  put(line, at - line);
  pthread_mutex_unlock(&lock);
  free(line);
}

static int opened(const char *path, int flags, int mode) {
  int fd = syscall(SYS_openat, AT_FDCWD, path, flags, mode);
  if (fd >= 0 && strcmp(path, "/dev/sev") == 0) sev_fd = fd;
  return fd;
}

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
  va_end(rest);
  return opened(path, flags, mode);
}
int open(const char *path, int flags, ...) __attribute__((alias("open64")));
int __open64_2(const char *path, int flags) { return opened(path, flags, 0); }

/* For prlimit(1): a root without CAP_SYS_RESOURCE cannot raise the bound of pinned memory, so it is only recorded. */
int prlimit(pid_t pid, enum __rlimit_resource resource, const struct rlimit *limit, struct rlimit *old) {
  int done = syscall(SYS_prlimit64, pid, resource, limit, old);
  if (resource != RLIMIT_MEMLOCK || limit == NULL) return done;
  record("memlock", (uint64_t[]){limit->rlim_max}, 1, NULL, 0);
  return done < 0 && errno == EPERM ? 0 : done;
}

static int launch(struct sev_cmd *cmd) {
  uint8_t *data = (uint8_t *)cmd->data;
  uint64_t id = cmd->id, *words = (uint64_t *)data;
  cmd->error = 0;
  if (id == LAUNCH_START) {
    record("start", NULL, 0, data, START_BYTES);
  } else if (id == LAUNCH_UPDATE) {
    struct launch_update *update = (void *)data;
    record("update", (uint64_t[]){update->gfn, update->bytes, update->type}, 3, (void *)update->address,
           update->address == 0 ? 0 : update->bytes);
    update->gfn += update->bytes / 4096;
    update->address += update->bytes;
    update->bytes = 0;
  } else if (id == LAUNCH_FINISH) {
    record("finish", NULL, 0, data, FINISH_BYTES);
    record("id-block", NULL, 0, (void *)words[0], words[0] == 0 ? 0 : ID_BLOCK_BYTES);
    record("id-auth", NULL, 0, (void *)words[1], words[1] == 0 ? 0 : ID_AUTH_BYTES);
  } else {
    record("command", &id, 1, NULL, 0);
  }
  return 0;
}

/* Bytes of a request that sets a processor's state; 0 for all others. */
static size_t state_bytes(uint32_t request, const void *argument, const char **name) {
  switch (request) {
    case SET_REGS: *name = "regs"; return 144;
    case SET_SREGS2: *name = "sregs2"; return 320;
    case SET_DEBUGREGS: *name = "debugregs"; return 128;
    case SET_XCRS: *name = "xcrs"; return 392;
    /* struct kvm_msrs: u32 nmsrs, u32 pad, then entries of 16 bytes. */
    case SET_MSRS: *name = "msrs"; return 8 + 16 * (size_t) * (const uint32_t *)argument;
    default: return 0;
  }
}

static void record_state(int fd, uint32_t request, const void *argument) {
  const char *name = NULL;
  size_t bytes = state_bytes(request, argument, &name);
  for (int i = 0; bytes > 0 && i < vcpu_count; i++) {
    if (vcpu_fds[i] == fd) record(name, (uint64_t[]){i}, 1, argument, bytes);
  }
}

static int passed(int fd, uint32_t request, void *argument) { return syscall(SYS_ioctl, fd, request, argument); }

/* Records what KVM then has: parts that the header's XSTATE_BV leaves out are initial, whatever QEMU wrote there. */
static int set_xsave(int fd, void *argument) {
  uint8_t now[4096];
  int done = passed(fd, SET_XSAVE, argument);
  if (done < 0 || passed(fd, GET_XSAVE, now) < 0) return done;
  for (int i = 0; i < vcpu_count; i++) {
    if (vcpu_fds[i] == fd) record("xsave", (uint64_t[]){i}, 1, now, XSAVE_LEGACY_BYTES);
  }
  return done;
}

static int extension(int fd, void *argument) {
  switch ((long)argument) {
    case CAP_VM_TYPES: return 0x1f;
    case CAP_MEMORY_ATTRIBUTES: return 8;
    case CAP_GUEST_MEMFD: case CAP_USER_MEMORY2: return 1;
    case CAP_EXIT_HYPERCALL: return 1 << 12;
    default: return passed(fd, CHECK_EXTENSION, argument);
  }
}

/* KVM of Linux 6.12 on a processor without debug swapping offers no feature of a VMSA beside SNP itself. */
static int device_attribute(int fd, struct device_attr *asked) {
  if (asked->group != GRP_SEV || asked->attr != SEV_VMSA_FEATURES) return passed(fd, GET_DEVICE_ATTR, asked);
  *(uint64_t *)asked->address = 0;
  return 0;
}

static int memory_region(int fd, const void *argument) {
  /* The older request has the same fields without the guest memory, whose flag is bit 2. */
  uint8_t older[32];
  memcpy(older, argument, sizeof older);
  older[4] &= ~4;
  return passed(fd, SET_MEMORY_REGION, older);
}

int ioctl(int fd, unsigned long whole, ...) {
  va_list rest;
  va_start(rest, whole);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  uint32_t request = whole;
  uint64_t *words = argument;
  if (fd == sev_fd && fd >= 0) {
    /* struct sev_issue_cmd is packed: u32 cmd, u64 data. All zero is a valid SEV_PLATFORM_STATUS. */
    uint64_t status = 0;
    if (request == SEV_ISSUE_CMD) memcpy(&status, (uint8_t *)argument + 4, 8);
    if (status != 0) memset((void *)status, 0, 12);
    return 0;
  }
  if (request == CREATE_GUEST_MEMFD) {
    record("guest-memfd", words, 1, NULL, 0);
    int memory = syscall(SYS_memfd_create, "guest-memory", MFD_CLOEXEC);
    return memory >= 0 && syscall(SYS_ftruncate, memory, words[0]) == 0 ? memory : -1;
  }
  if (request == MEMORY_ENCRYPT_OP) return launch(argument);
  switch (request) {
    case CHECK_EXTENSION: return extension(fd, argument);
    case CREATE_VM:
      record("vm", (uint64_t[]){(uint64_t)argument}, 1, NULL, 0);
      return passed(fd, CREATE_VM, NULL);
    case CREATE_VCPU: {
      int vcpu = passed(fd, CREATE_VCPU, argument);
      bool is_next = vcpu >= 0 && (long)argument == vcpu_count && vcpu_count < VCPUS_MAX;
      if (is_next) vcpu_fds[vcpu_count++] = vcpu;
      return vcpu;
    }
    case SET_XSAVE: return set_xsave(fd, argument);
    case GET_DEVICE_ATTR: return device_attribute(fd, argument);
    case SET_MEMORY_REGION2: return memory_region(fd, argument);
    case SET_MEMORY_ATTRIBUTES: record("attributes", words, 4, NULL, 0); return 0;
    case ENABLE_CAP: {
      int done = passed(fd, ENABLE_CAP, argument);
      return *(uint32_t *)argument == CAP_EXIT_HYPERCALL ? 0 : done;
    }
    case RUN: {
      static int told;
      if (!__sync_lock_test_and_set(&told, 1)) record("run", NULL, 0, NULL, 0);
      pause();
      errno = EINTR;
      return -1;
    }
    default: record_state(fd, request, argument); return passed(fd, request, argument);
  }
}
