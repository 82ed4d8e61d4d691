/* LD_PRELOAD: let the k-th operation that changes files under one folder fail.

   Armed and asked through ctypes by `jobs.py`. Until then, and for other files, calls pass through. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum kind { NONE, KILL, FULL, BROKEN, SHORT };

static char folder[PATH_MAX];
static enum kind kind = NONE;
static long at = -1, seen = 0; /* at < 0: not armed */

void faults_arm(const char *path, long k, int how) {
    snprintf(folder, sizeof folder, "%s", path);
    kind = how, at = k, seen = 0;
}

long faults_seen(void) { return seen; }

static int within(const char *path) {
    size_t n = strlen(folder);
    return at >= 0 && path != NULL && strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static int file_within(int descriptor) {
    char link[64], path[PATH_MAX];
    ssize_t n;
    if (at < 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    n = readlink(link, path, sizeof path - 1);
    if (n < 0)
        return 0;
    path[n] = '\0';
    return within(path);
}

/* Whether this operation fails, with errno set. A full disk stays full for what needs room. */
static int fails(int needs_room) {
    int due = ++seen == at;
    if (due && kind == KILL)
        kill(getpid(), SIGKILL);
    if (kind == FULL && (due || (needs_room && at > 0 && seen > at)))
        return errno = ENOSPC, 1;
    if (due && kind == BROKEN)
        return errno = EIO, 1;
    return 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPEN(name)                                                                     \
    int name(const char *path, int flags, ...) {                                       \
        mode_t mode = 0;                                                               \
        if (flags & (O_CREAT | O_TMPFILE)) {                                           \
            va_list rest;                                                              \
            va_start(rest, flags);                                                     \
            mode = va_arg(rest, mode_t);                                               \
            va_end(rest);                                                              \
        }                                                                              \
        if (((flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT) && within(path) && fails(flags & O_CREAT)) \
            return -1;                                                                 \
        return REAL(name)(path, flags, mode);                                          \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                   \
    int name(int at_folder, const char *path, int flags, ...) {                        \
        mode_t mode = 0;                                                               \
        if (flags & (O_CREAT | O_TMPFILE)) {                                           \
            va_list rest;                                                              \
            va_start(rest, flags);                                                     \
            mode = va_arg(rest, mode_t);                                               \
            va_end(rest);                                                              \
        }                                                                              \
        if (((flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT) && within(path) && fails(flags & O_CREAT)) \
            return -1;                                                                 \
        return REAL(name)(at_folder, path, flags, mode);                               \
    }
OPENAT(openat)
OPENAT(openat64)

/* A write that is killed or short has written half. */
#define WRITE(name, declared, passed)                                                  \
    ssize_t name declared {                                                            \
        if (file_within(descriptor)) {                                                 \
            int half = seen + 1 == at && (kind == KILL || kind == SHORT) && size > 1;  \
            ssize_t done = 0;                                                          \
            if (half) {                                                                \
                size /= 2;                                                             \
                done = REAL(name) passed;                                              \
            }                                                                          \
            if (fails(1))                                                              \
                return -1;                                                             \
            if (half)                                                                  \
                return done;                                                           \
        }                                                                              \
        return REAL(name) passed;                                                      \
    }
WRITE(write, (int descriptor, const void *data, size_t size), (descriptor, data, size))
WRITE(pwrite, (int descriptor, const void *data, size_t size, off_t place), (descriptor, data, size, place))
WRITE(pwrite64, (int descriptor, const void *data, size_t size, off64_t place), (descriptor, data, size, place))

#define BY_FILE(name, declared, passed, needs_room)                                    \
    int name declared { return file_within(descriptor) && fails(needs_room) ? -1 : REAL(name) passed; }
BY_FILE(fsync, (int descriptor), (descriptor), 0)
BY_FILE(fdatasync, (int descriptor), (descriptor), 0)
BY_FILE(ftruncate, (int descriptor, off_t size), (descriptor, size), 0)
BY_FILE(ftruncate64, (int descriptor, off64_t size), (descriptor, size), 0)
BY_FILE(fchmod, (int descriptor, mode_t mode), (descriptor, mode), 0)

#define BY_PATH(name, declared, passed, needs_room)                                    \
    int name declared { return within(path) && fails(needs_room) ? -1 : REAL(name) passed; }
BY_PATH(mkdir, (const char *path, mode_t mode), (path, mode), 1)
BY_PATH(rmdir, (const char *path), (path), 0)
BY_PATH(unlink, (const char *path), (path), 0)
BY_PATH(unlinkat, (int at_folder, const char *path, int flags), (at_folder, path, flags), 0)
BY_PATH(chmod, (const char *path, mode_t mode), (path, mode), 0)
BY_PATH(rename, (const char *old, const char *path), (old, path), 0)
BY_PATH(renameat, (int a, const char *old, int b, const char *path), (a, old, b, path), 0)
BY_PATH(link, (const char *old, const char *path), (old, path), 1)
