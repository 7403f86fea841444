// Preloaded into the program by disk_faults.py: makes the disk below FAULT_PATH fail, or lack what some file systems lack.
//   FAULT_KIND=nospace|io|short   the FAULT_AT-th call (from 1; 0: none) of write, pwrite, fsync, rename, link, mkdir fails so, and every
//                                 later one where FAULT_STAYS=1
//   FAULT_KIND=nolocks            flock is ENOLCK
//   FAULT_KIND=nfs4               flock of a file that is open for reading alone is EBADF
//   FAULT_KIND=nolinks            link and RENAME_NOREPLACE are not there
//   FAULT_KIND=poor               nolocks and nolinks together
// The number of counted calls is written to FAULT_LOG at the end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long num_calls;
static const char *kind, *below;
static long fails_at;
static int stays;

__attribute__((constructor)) static void read_plan(void) {
  kind = getenv("FAULT_KIND") ? getenv("FAULT_KIND") : "";
  below = getenv("FAULT_PATH") ? getenv("FAULT_PATH") : "/nowhere";
  fails_at = getenv("FAULT_AT") ? atol(getenv("FAULT_AT")) : 0;
  stays = getenv("FAULT_STAYS") != NULL;
}

__attribute__((destructor)) static void write_count(void) {
  const char* path = getenv("FAULT_LOG");
  FILE* file = path ? fopen(path, "w") : NULL;
  if (file) {
    fprintf(file, "%ld\n", atomic_load(&num_calls));
    fclose(file);
  }
}

static int is_below(const char* path) { return path && strncmp(path, below, strlen(below)) == 0; }

static int descriptor_is_below(int descriptor) {
  char name[64], path[PATH_MAX];
  snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(name, path, sizeof path - 1);
  if (size <= 0) return 0;
  path[size] = 0;
  return is_below(path);
}

static int is(const char* name) { return strcmp(kind, name) == 0; }

// 0: goes on. Else it fails, with errno.
static int fails(void) {
  const long number = atomic_fetch_add(&num_calls, 1) + 1;
  if (fails_at == 0 || !(number == fails_at || (stays && number > fails_at))) return 0;
  errno = is("io") ? EIO : ENOSPC;
  return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int descriptor, const void* bytes, size_t size) {
  if (descriptor > 2 && descriptor_is_below(descriptor) && fails()) {
    if (is("short") && size > 1) return REAL(write)(descriptor, bytes, size / 2);
    return -1;
  }
  return REAL(write)(descriptor, bytes, size);
}

ssize_t pwrite64(int descriptor, const void* bytes, size_t size, off64_t at) {
  if (descriptor_is_below(descriptor) && fails()) {
    if (is("short") && size > 1) return REAL(pwrite64)(descriptor, bytes, size / 2, at);
    return -1;
  }
  return REAL(pwrite64)(descriptor, bytes, size, at);
}
ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t at) { return pwrite64(descriptor, bytes, size, at); }

int fsync(int descriptor) { return descriptor_is_below(descriptor) && fails() ? -1 : REAL(fsync)(descriptor); }

int rename(const char* from, const char* to) { return is_below(to) && fails() ? -1 : REAL(rename)(from, to); }

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  if (is_below(to)) {
    if ((is("nolinks") || is("poor")) && flags) {
      errno = EINVAL;
      return -1;
    }
    if (fails()) return -1;
  }
  return REAL(renameat2)(from_folder, from, to_folder, to, flags);
}

int link(const char* from, const char* to) {
  if (is_below(to)) {
    if (is("nolinks") || is("poor")) {
      errno = EPERM;
      return -1;
    }
    if (fails()) return -1;
  }
  return REAL(link)(from, to);
}

int mkdir(const char* path, mode_t mode) { return is_below(path) && fails() ? -1 : REAL(mkdir)(path, mode); }

int flock(int descriptor, int operation) {
  if (descriptor_is_below(descriptor)) {
    struct stat state;
    if (is("nolocks") || is("poor")) {
      errno = ENOLCK;
      return -1;
    }
    // Folders cannot be opened for writing, so on NFS they cannot be locked at all.
    if (is("nfs4") && (fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_RDONLY && fstat(descriptor, &state) == 0) {
      errno = EBADF;
      return -1;
    }
  }
  return REAL(flock)(descriptor, operation);
}
