/* A wall clock that somebody sets: it is ahead by the nanoseconds in $FAULTS/ahead (text, may be negative). For LD_PRELOAD.
 *
 * The monotonic clocks go on as they are, as they do where a real clock is set.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static long long ahead(void)
{
	char text[32] = "", path[PATH_MAX];
	const char *folder = getenv("FAULTS");
	int before = errno, file;

	if (folder == NULL)
		return 0;
	snprintf(path, sizeof path, "%s/ahead", folder);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file >= 0) {
		if (read(file, text, sizeof text - 1) < 0)
			text[0] = 0;
		close(file);
	}
	errno = before;
	return atoll(text);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	static int (*real)(clockid_t, struct timespec *);
	long long sum;
	int failed;

	if (real == NULL)
		real = dlsym(RTLD_NEXT, "clock_gettime");
	failed = real(clock, now);
	if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return failed;
	sum = now->tv_sec * SECOND + now->tv_nsec + ahead();
	now->tv_sec = sum / SECOND;
	now->tv_nsec = sum % SECOND;
	return 0;
}

time_t time(time_t *told)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (told != NULL)
		*told = now.tv_sec;
	return now.tv_sec;
}

int gettimeofday(struct timeval *told, void *zone)
{
	struct timespec now;

	(void) zone;
	clock_gettime(CLOCK_REALTIME, &now);
	told->tv_sec = now.tv_sec;
	told->tv_usec = now.tv_nsec / 1000;
	return 0;
}
