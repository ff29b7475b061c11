/* A disk that is full, or slow, as long as a file of that name lies in $FAULTS: for LD_PRELOAD.
 *
 * Full is as file systems are: what is there may be written over, what would make a file longer fails with ENOSPC.
 * Slow: fsync and fdatasync do not return.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is(const char *fault)
{
	char path[PATH_MAX];
	const char *folder = getenv("FAULTS");
	int before = errno, found;

	if (folder == NULL)
		return 0;
	snprintf(path, sizeof path, "%s/%s", folder, fault);
	found = access(path, F_OK) == 0;
	errno = before;
	return found;
}

static int refused(int file, off_t end)
{
	struct stat found;

	if (!is("full") || fstat(file, &found) != 0 || !S_ISREG(found.st_mode) || end <= found.st_size)
		return 0;
	errno = ENOSPC;
	return 1;
}

static off_t length(const struct iovec *parts, int number)
{
	off_t sum = 0;

	for (int i = 0; i < number; i++)
		sum += parts[i].iov_len;
	return sum;
}

ssize_t write(int file, const void *data, size_t size)
{
	off_t at = is("full") ? lseek(file, 0, SEEK_CUR) : -1;

	return at >= 0 && refused(file, at + (off_t) size) ? -1 : REAL(write)(file, data, size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at)
{
	return refused(file, at + (off_t) size) ? -1 : REAL(pwrite)(file, data, size, at);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at)
{
	return pwrite(file, data, size, at);
}

ssize_t pwritev(int file, const struct iovec *parts, int number, off_t at)
{
	return refused(file, at + length(parts, number)) ? -1 : REAL(pwritev)(file, parts, number, at);
}

ssize_t pwritev64(int file, const struct iovec *parts, int number, off64_t at)
{
	return pwritev(file, parts, number, at);
}

int posix_fallocate(int file, off_t at, off_t size)
{
	return refused(file, at + size) ? ENOSPC : REAL(posix_fallocate)(file, at, size);
}

int posix_fallocate64(int file, off64_t at, off64_t size)
{
	return posix_fallocate(file, at, size);
}

int ftruncate(int file, off_t size)
{
	return refused(file, size) ? -1 : REAL(ftruncate)(file, size);
}

int ftruncate64(int file, off64_t size)
{
	return ftruncate(file, size);
}

int fsync(int file)
{
	while (is("slow"))
		usleep(10000);
	return REAL(fsync)(file);
}

int fdatasync(int file)
{
	while (is("slow"))
		usleep(10000);
	return REAL(fdatasync)(file);
}
