/* Put in front of the C library for a test: fdatasync fails while the file named by PUSH_TEST_SYNC_FAILS exists. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int fd)
{
    const char *file = getenv("PUSH_TEST_SYNC_FAILS");
    if (file && access(file, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}
