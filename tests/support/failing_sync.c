/* A preloaded library for tests: fdatasync fails while the file named by PUSH_TEST_SYNC_FAILS exists, and blocks while a
   file of that name with the suffix ".hold" exists; it then creates one with the suffix ".held". */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int exists(const char *file, const char *ending, int create)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", file, ending);
    if (create)
        close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    return access(path, F_OK) == 0;
}

int fdatasync(int fd)
{
    const char *file = getenv("PUSH_TEST_SYNC_FAILS");
    while (file && exists(file, ".hold", 0)) {
        exists(file, ".held", 1);
        usleep(1000);
    }
    if (file && exists(file, "", 0)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}
