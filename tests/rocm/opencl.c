// SPDX-License-Identifier: GPL-2.0 OR MIT
//
// A program of OpenCL as its users write them: its kernels are compiled when it runs. Prints TAP.

#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// LLVM 17 loses the end of a string for `%s` whose length is a multiple of 4, and what follows it, so there is none.
static const char *const source =
	"kernel void turn(global const uint *from, global uint *to, local uint *own)\n"
	"{\n"
	"	size_t at = get_local_id(0), size = get_local_size(0);\n"
	"	own[at] = from[get_global_id(0)] * 3;\n"
	"	barrier(CLK_LOCAL_MEM_FENCE);\n"
	"	to[get_global_id(0)] = own[size - 1 - at];\n"
	"}\n"
	"kernel void add(global double *sum, global const double *from)\n"
	"{\n"
	"	sum[get_global_id(0)] += sqrt(from[get_global_id(0)]);\n"
	"}\n"
	"kernel void count(volatile global uint *counter)\n"
	"{\n"
	"	atomic_add(counter, get_global_id(0));\n"
	"}\n"
	"kernel void speak(void)\n"
	"{\n"
	"	printf(\"item %d: %.2f\\n\", (int)get_global_id(0), get_global_id(0) * 0.5f);\n"
	"}\n";

static int number, failed;

static void report(int good, const char *name)
{
	printf("%sok %d %s\n", good ? "" : "not ", ++number, name);
	fflush(stdout);
	failed |= !good;
}

static void must(cl_int error, const char *what)
{
	if (error == CL_SUCCESS)
		return;
	printf("# %s: error %d\n", what, error);
	report(0, what);
	printf("1..%d\n", number);
	exit(1);
}

static cl_context context;
static cl_command_queue queue;
static cl_program program;

static cl_mem buffer(size_t bytes, const void *data)
{
	cl_int error;
	cl_mem made = clCreateBuffer(context, CL_MEM_READ_WRITE | (data ? CL_MEM_COPY_HOST_PTR : 0), bytes, (void *)data, &error);

	must(error, "clCreateBuffer");
	return made;
}

static void fetch(cl_mem from, size_t bytes, void *to)
{
	must(clEnqueueReadBuffer(queue, from, CL_TRUE, 0, bytes, to, 0, NULL, NULL), "clEnqueueReadBuffer");
}

// Runs a kernel whose first arguments are buffers; `local` bytes of local memory, if any, are its last one.
static void run(const char *name, size_t items, size_t group, const cl_mem *buffers, unsigned count, size_t local)
{
	cl_int error;
	cl_kernel kernel = clCreateKernel(program, name, &error);
	unsigned i;

	must(error, name);
	for (i = 0; i < count; i++)
		must(clSetKernelArg(kernel, i, sizeof(*buffers), &buffers[i]), "clSetKernelArg");
	if (local)
		must(clSetKernelArg(kernel, count, local, NULL), "clSetKernelArg");
	must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &group, 0, NULL, NULL), "clEnqueueNDRangeKernel");
	must(clFinish(queue), "clFinish");
	clReleaseKernel(kernel);
}

static void turned(void)
{
	static unsigned from[6400], to[6400];
	cl_mem buffers[2];
	unsigned i;
	int good = 1;

	for (i = 0; i < 6400; i++)
		from[i] = i * i;
	buffers[0] = buffer(sizeof(from), from);
	buffers[1] = buffer(sizeof(to), NULL);
	run("turn", 6400, 128, buffers, 2, 128 * 4);
	fetch(buffers[1], sizeof(to), to);
	for (i = 0; i < 6400; i++)
		good &= to[i] == from[i / 128 * 128 + 127 - i % 128] * 3;
	report(good, "local memory and barriers");
}

static void added(void)
{
	double sums[1000], squares[1000];
	cl_mem buffers[2];
	unsigned i;
	int good = 1;

	for (i = 0; i < 1000; i++) {
		sums[i] = 0.25 * i;
		squares[i] = (double)i * i;
	}
	buffers[0] = buffer(sizeof(sums), sums);
	buffers[1] = buffer(sizeof(squares), squares);
	run("add", 1000, 8, buffers, 2, 0);
	fetch(buffers[0], sizeof(sums), sums);
	for (i = 0; i < 1000; i++)
		good &= sums[i] == 1.25 * i;
	report(good, "doubles and square roots");
}

static void counted(void)
{
	unsigned zero = 0, found = 0;
	cl_mem counter = buffer(sizeof(zero), &zero);

	run("count", 20000, 50, &counter, 1, 0);
	fetch(counter, sizeof(found), &found);
	report(found == 20000u * 19999u / 2, "atomics");
}

static void filled(void)
{
	static unsigned found[5000];
	const unsigned pattern[2] = {0x12345678, 0x9abcdef0};
	cl_mem first = buffer(sizeof(found), NULL), second = buffer(sizeof(found), NULL);
	unsigned i;
	int good = 1;

	must(clEnqueueFillBuffer(queue, first, pattern, 8, 0, sizeof(found), 0, NULL, NULL), "clEnqueueFillBuffer");
	must(clEnqueueCopyBuffer(queue, first, second, 8, 16, 16000, 0, NULL, NULL), "clEnqueueCopyBuffer");
	fetch(second, sizeof(found), found);
	for (i = 4; i < 4004; i++)
		good &= found[i] == pattern[i % 2];
	report(good, "fills and copies");
}

static void spoken(void)
{
	char name[] = "/tmp/opencl-XXXXXX", line[64];
	int file = mkstemp(name), out = dup(STDOUT_FILENO), lines = 0, known = 0;
	FILE *from;

	fflush(stdout);
	dup2(file, STDOUT_FILENO);
	run("speak", 3, 1, NULL, 0, 0);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
	close(file);
	from = fopen(name, "r");
	while (from && fgets(line, sizeof(line), from)) {
		lines++;
		printf("# printed: %s%s", line, strchr(line, '\n') ? "" : "\n");
		known += !strcmp(line, "item 0: 0.00\n") || !strcmp(line, "item 1: 0.50\n") ||
			 !strcmp(line, "item 2: 1.00\n");
	}
	if (from)
		fclose(from);
	unlink(name);
	report(lines == 3 && known == 3, "printf");
}

int main(void)
{
	const char *asic = getenv("RKFD_ASIC");
	cl_platform_id platform;
	cl_device_id device;
	cl_uint count;
	cl_int error;
	char name[128] = "", log[4096] = "";

	must(clGetPlatformIDs(1, &platform, &count), "clGetPlatformIDs");
	must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_GPU, 1, &device, &count), "clGetDeviceIDs");
	must(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof(name), name, NULL), "clGetDeviceInfo");
	report(!strncmp(name, asic ? asic : "gfx9", strlen(asic ? asic : "gfx9")), "the device has its name");
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
	must(error, "clCreateContext");
	queue = clCreateCommandQueueWithProperties(context, device, NULL, &error);
	must(error, "clCreateCommandQueueWithProperties");
	program = clCreateProgramWithSource(context, 1, (const char **)&source, NULL, &error);
	must(error, "clCreateProgramWithSource");
	error = clBuildProgram(program, 1, &device, "", NULL, NULL);
	if (error != CL_SUCCESS) {
		clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof(log) - 1, log, NULL);
		printf("# %s\n", log);
	}
	must(error, "the kernels compile");
	report(1, "the kernels compile");
	turned();
	added();
	counted();
	filled();
	spoken();
	printf("1..%d\n", number);
	return failed;
}
