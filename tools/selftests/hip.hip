// SPDX-License-Identifier: GPL-2.0
//
// A program of HIP as its users write them: compiled by hipcc, linked with libamdhip64, unmodified below that. Each
// case compares what the GPU has made with the same on the CPU.
//
//   hip          all cases, in TAP
//   hip saxpy    one kernel, told in words

#include <hip/hip_runtime.h>
// Needs what the one before has.
#include <hip/hip_cooperative_groups.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

/// What is wrong with the case that runs, in words; empty while nothing is.
std::string wrong;
/// Why it cannot run here; empty if it can.
std::string skipped;

__attribute__((format(printf, 1, 2))) void fail(const char *format, ...) {
	char text[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (wrong.empty())
		wrong = text;
}

/// Whether a call went well.
bool good(hipError_t error, const char *call) {
	if (error != hipSuccess)
		fail("%s: %s", call, hipGetErrorString(error));
	return error == hipSuccess;
}
#define GOOD(call) good(call, #call)

/// Memory of the device.
template <typename T> class Device {
public:
	explicit Device(size_t count) : count(count) { GOOD(hipMalloc(&data, count * sizeof(T))); }
	explicit Device(const std::vector<T> &from) : Device(from.size()) {
		GOOD(hipMemcpy(data, from.data(), count * sizeof(T), hipMemcpyHostToDevice));
	}
	Device(const Device &) = delete;
	~Device() { GOOD(hipFree(data)); }
	std::vector<T> read() const {
		std::vector<T> to(count);
		GOOD(hipMemcpy(to.data(), data, count * sizeof(T), hipMemcpyDeviceToHost));
		return to;
	}
	operator T *() const { return data; }

private:
	T *data = nullptr;
	size_t count;
};

template <typename T> void same(const char *what, const std::vector<T> &found, const std::vector<T> &wanted) {
	if (found.size() != wanted.size())
		return fail("%s: %zu values instead of %zu", what, found.size(), wanted.size());
	for (size_t i = 0; i < wanted.size(); i++) {
		if (found[i] == wanted[i])
			continue;
		std::ostringstream text;
		text << what << ": value " << i << " is " << found[i] << " instead of " << wanted[i];
		return fail("%s", text.str().c_str());
	}
}

std::vector<uint32_t> numbers(size_t count, uint32_t seed) {
	std::vector<uint32_t> all(count);
	for (auto &one : all)
		one = seed = seed * 1664525 + 1013904223;
	return all;
}

/// Rounds up.
unsigned blocks(size_t count, unsigned size) { return static_cast<unsigned>((count + size - 1) / size); }

/// A value of the GPU's node in the topology of the driver; 0 where there is none.
unsigned long topology(const char *wanted) {
	for (int node = 0; node < 8; node++) {
		std::ifstream file("/sys/class/kfd/kfd/topology/nodes/" + std::to_string(node) + "/properties");
		std::string name;
		unsigned long value, found = 0, simds = 0;
		while (file >> name >> value) {
			if (name == "simd_count")
				simds = value;
			if (name == wanted)
				found = value;
		}
		if (simds)
			return found;
	}
	return 0;
}

void device() {
	int count = 0;
	hipDeviceProp_t properties = {};
	size_t available = 0, total = 0;
	if (!GOOD(hipGetDeviceCount(&count)) || !GOOD(hipGetDeviceProperties(&properties, 0)) ||
	    !GOOD(hipMemGetInfo(&available, &total)))
		return;
	const char *asic = getenv("RKFD_ASIC");
	if (asic && std::string(properties.gcnArchName).compare(0, strlen(asic), asic) != 0)
		fail("gcnArchName is %s, the GPU a %s", properties.gcnArchName, asic);
	unsigned long simds = topology("simd_count"), each = topology("simd_per_cu");
	if (!each || static_cast<unsigned long>(properties.multiProcessorCount) != simds / each)
		fail("%d units, the topology has %lu SIMDs, %lu in a unit", properties.multiProcessorCount, simds, each);
	unsigned long clock = topology("max_engine_clk_fcompute");
	if (static_cast<unsigned long>(properties.clockRate) != clock * 1000)
		fail("clockRate is %d kHz, the topology has %lu MHz", properties.clockRate, clock);
	if (properties.warpSize != 64 || properties.sharedMemPerBlock != 65536)
		fail("warpSize %d, sharedMemPerBlock %zu", properties.warpSize, properties.sharedMemPerBlock);
	if (total != properties.totalGlobalMem || available > total || available < total / 2)
		fail("%zu bytes, of which %zu available", total, available);
}

void copies() {
	const auto data = numbers(300001, 1);
	Device<uint32_t> first(data), second(data.size());
	GOOD(hipMemcpy(second, first, data.size() * 4, hipMemcpyDeviceToDevice));
	same("there and back", second.read(), data);

	// 100 rows of 37 bytes, from rows of 64 to rows of 48.
	std::vector<uint8_t> from(6400), to(4800, 0xee), wanted(4800, 0xee);
	for (size_t i = 0; i < from.size(); i++)
		from[i] = static_cast<uint8_t>(data[i]);
	for (size_t row = 0; row < 100; row++)
		std::copy_n(from.begin() + row * 64 + 3, 37, wanted.begin() + row * 48);
	Device<uint8_t> rows(from);
	GOOD(hipMemcpy2D(to.data(), 48, rows + 3, 64, 37, 100, hipMemcpyDeviceToHost));
	same("rows", to, wanted);

	GOOD(hipMemset(rows + 5, 0x5a, 1001));
	GOOD(hipMemsetD32(reinterpret_cast<hipDeviceptr_t>(rows + 2048), 0x12345678, 33));
	std::fill_n(from.begin() + 5, 1001, 0x5a);
	for (size_t i = 0; i < 33; i++)
		memcpy(&from[2048 + 4 * i], "\x78\x56\x34\x12", 4);
	same("filled", rows.read(), from);
}

__global__ void add(const uint32_t *a, const uint32_t *b, uint32_t *sum, size_t count) {
	size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
	if (i < count)
		sum[i] = a[i] + b[i];
}

void addition() {
	const auto a = numbers(100003, 2), b = numbers(100003, 3);
	std::vector<uint32_t> wanted(a.size());
	std::transform(a.begin(), a.end(), b.begin(), wanted.begin(), std::plus<>());
	Device<uint32_t> left(a), right(b), sum(a.size());
	add<<<blocks(a.size(), 256), 256>>>(left, right, sum, a.size());
	GOOD(hipGetLastError());
	same("sum", sum.read(), wanted);
}

__global__ void reduce(const uint32_t *from, uint32_t *sums, size_t count) {
	__shared__ uint32_t parts[4];
	size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
	uint32_t sum = i < count ? from[i] : 0;
	for (int step = 32; step > 0; step /= 2)
		sum += __shfl_down(sum, step);
	if (threadIdx.x % 64 == 0)
		parts[threadIdx.x / 64] = sum;
	__syncthreads();
	if (threadIdx.x == 0)
		sums[blockIdx.x] = parts[0] + parts[1] + parts[2] + parts[3];
}

void reduction() {
	const auto data = numbers(60013, 4);
	Device<uint32_t> from(data), sums(blocks(data.size(), 256));
	reduce<<<blocks(data.size(), 256), 256>>>(from, sums, data.size());
	GOOD(hipGetLastError());
	const auto parts = sums.read();
	same<uint32_t>("sum", {std::accumulate(parts.begin(), parts.end(), 0u)},
		       {std::accumulate(data.begin(), data.end(), 0u)});
}

__global__ void count(const uint32_t *from, uint32_t *bins, size_t count) {
	extern __shared__ uint32_t own[];
	own[threadIdx.x] = 0;
	__syncthreads();
	for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
		atomicAdd(&own[from[i] >> 24], 1);
	__syncthreads();
	atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

void histogram() {
	const auto data = numbers(50021, 5);
	std::vector<uint32_t> wanted(256);
	for (auto one : data)
		wanted[one >> 24]++;
	Device<uint32_t> from(data), bins(256);
	GOOD(hipMemset(bins, 0, 1024));
	count<<<13, 256, 1024>>>(from, bins, data.size());
	GOOD(hipGetLastError());
	same("bins", bins.read(), wanted);
}

/// Takes as much private memory as a runtime gives only when it is asked for.
__global__ void spill(const uint32_t *from, uint32_t *to) {
	uint32_t own[1500];
	for (int i = 0; i < 1500; i++)
		own[(i * 7 + threadIdx.x) % 1500] = from[i] + blockIdx.x;
	uint32_t sum = 0;
	for (int i = 0; i < 1500; i++)
		sum = sum * 31 + own[(from[i] >> 7) % 1500];
	to[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

void scratch() {
	const auto data = numbers(1500, 6);
	std::vector<uint32_t> wanted(256), own(1500);
	for (uint32_t at = 0; at < 256; at++) {
		for (uint32_t i = 0; i < 1500; i++)
			own[(i * 7 + at % 64) % 1500] = data[i] + at / 64;
		for (uint32_t i = 0; i < 1500; i++)
			wanted[at] = wanted[at] * 31 + own[(data[i] >> 7) % 1500];
	}
	Device<uint32_t> from(data), to(256);
	spill<<<4, 64>>>(from, to);
	GOOD(hipGetLastError());
	same("sums", to.read(), wanted);
}

__global__ void step(uint32_t *value, uint32_t factor) { *value = *value * factor + 1; }

void order() {
	// Many launches, one after the other; then two streams, of which one waits for the other.
	Device<uint32_t> value(std::vector<uint32_t>{1});
	uint32_t wanted = 1;
	for (uint32_t i = 0; i < 300; i++, wanted = wanted * 3 + 1)
		step<<<1, 1>>>(value, 3);
	same<uint32_t>("300 launches", value.read(), {wanted});

	hipStream_t streams[2];
	hipEvent_t begun, ended;
	for (auto &stream : streams)
		GOOD(hipStreamCreate(&stream));
	GOOD(hipEventCreate(&begun));
	GOOD(hipEventCreate(&ended));
	GOOD(hipEventRecord(begun, streams[0]));
	for (uint32_t i = 0; i < 20; i++, wanted = wanted * 5 + 1)
		step<<<1, 1, 0, streams[0]>>>(value, 5);
	GOOD(hipEventRecord(ended, streams[0]));
	GOOD(hipStreamWaitEvent(streams[1], ended, 0));
	step<<<1, 1, 0, streams[1]>>>(value, 7);
	wanted = wanted * 7 + 1;
	GOOD(hipStreamSynchronize(streams[1]));
	same<uint32_t>("two streams", value.read(), {wanted});
	float milliseconds = -1;
	if (GOOD(hipEventElapsedTime(&milliseconds, begun, ended)) && !(milliseconds > 0))
		fail("20 launches took %g ms", milliseconds);
	GOOD(hipEventDestroy(begun));
	GOOD(hipEventDestroy(ended));
	for (auto &stream : streams)
		GOOD(hipStreamDestroy(stream));
}

__global__ void meet(uint32_t *shared, uint32_t *seen) {
	atomicAdd_system(&shared[0], 2);
	seen[threadIdx.x] = shared[1];
	__threadfence_system();
	if (threadIdx.x == 0)
		__atomic_store_n(&shared[2], 0x600d, __ATOMIC_RELEASE);
}

void host_memory() {
	uint32_t *shared = nullptr;
	if (!GOOD(hipHostMalloc(&shared, 4096, hipHostMallocCoherent)))
		return;
	shared[0] = 5;
	shared[1] = 77;
	shared[2] = 0;
	Device<uint32_t> seen(64);
	meet<<<1, 64>>>(shared, seen);
	// The value comes while the kernel may still be running.
	while (__atomic_load_n(&shared[2], __ATOMIC_ACQUIRE) != 0x600d)
		usleep(100);
	GOOD(hipDeviceSynchronize());
	same<uint32_t>("sum", {shared[0]}, {5 + 2 * 64});
	same("seen", seen.read(), std::vector<uint32_t>(64, 77));
	GOOD(hipHostFree(shared));
}

/// How many pages of this process are in VRAM.
size_t pages_in_vram(const void *data, size_t bytes) {
	const size_t page = 4096, first = reinterpret_cast<uintptr_t>(data) / page, count = bytes / page;
	std::vector<uint64_t> entries(count);
	// No stream: the file is read by whole entries, which a stream's buffer does not do.
	const int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	const ssize_t got = pread(map, entries.data(), count * sizeof(uint64_t), static_cast<off_t>(first * sizeof(uint64_t)));
	if (got != static_cast<ssize_t>(count * sizeof(uint64_t)))
		fail("/proc/self/pagemap cannot be read");
	close(map);
	return static_cast<size_t>(std::count_if(entries.begin(), entries.end(), [](uint64_t one) { return one >> 62 & 1; }));
}

__global__ void mix(uint32_t *data, size_t count) {
	size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
	if (i < count)
		data[i] = data[i] * 3 + static_cast<uint32_t>(i);
}

/// Memory that both sides use at one address, sent to the GPU and back.
void managed() {
	constexpr size_t COUNT = 1 << 18, BYTES = COUNT * 4;
	int can = 0;
	if (!GOOD(hipDeviceGetAttribute(&can, hipDeviceAttributeManagedMemory, 0)))
		return;
	if (!can) {
		skipped = "the runtime has no managed memory here";
		return;
	}
	uint32_t *data = nullptr;
	if (!GOOD(hipMallocManaged(&data, BYTES)))
		return;
	auto wanted = numbers(COUNT, 7);
	std::copy(wanted.begin(), wanted.end(), data);
	const bool ours = !access("/sys/module/rkfd", F_OK);
	const char *tell = nullptr;
	auto step = [&](const char *what) {
		mix<<<blocks(COUNT, 256), 256>>>(data, COUNT);
		GOOD(hipGetLastError());
		GOOD(hipDeviceSynchronize());
		for (size_t i = 0; i < COUNT; i++)
			wanted[i] = wanted[i] * 3 + static_cast<uint32_t>(i);
		tell = what;
	};
	for (int round = 0; round < 3; round++) {
		step("in place");
		same(tell, std::vector<uint32_t>(data, data + COUNT), wanted);
		GOOD(hipMemPrefetchAsync(data, BYTES, 0));
		GOOD(hipDeviceSynchronize());
		const size_t there = pages_in_vram(data, BYTES);
		if (ours && there < BYTES / 4096 / 2)
			fail("%zu pages of %zu are in VRAM after a prefetch", there, BYTES / 4096);
		step("in VRAM");
		if (round == 1) {
			GOOD(hipMemPrefetchAsync(data, BYTES, hipCpuDeviceId));
			GOOD(hipDeviceSynchronize());
			if (const size_t left = pages_in_vram(data, BYTES))
				fail("%zu pages are in VRAM after a prefetch to the CPU", left);
		}
		same(tell, std::vector<uint32_t>(data, data + COUNT), wanted);
	}
	GOOD(hipFree(data));
}

__global__ void speak() {
	unsigned lane = threadIdx.x, block = blockIdx.x;
	printf("lane %u of block %u: %s %.2f\n", lane, block, "text", lane * 0.25);
}

void printing() {
	char name[] = "/tmp/hip-printf-XXXXXX";
	int file = mkstemp(name), out = dup(STDOUT_FILENO);
	fflush(stdout);
	dup2(file, STDOUT_FILENO);
	speak<<<2, 3>>>();
	GOOD(hipDeviceSynchronize());
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
	close(file);
	std::ifstream from(name);
	std::vector<std::string> lines, wanted;
	for (std::string line; std::getline(from, line);)
		lines.push_back(line);
	unlink(name);
	std::sort(lines.begin(), lines.end());
	for (const char *lane : {"0", "1", "2"})
		for (const char *block : {"0", "1"})
			wanted.push_back(std::string("lane ") + lane + " of block " + block + ": text 0." +
					 (*lane == '0' ? "00" : *lane == '1' ? "25" : "50"));
	same("lines", lines, wanted);
}

/// All groups add to a counter, meet, and look at it.
__global__ void meet_all(uint32_t *counts, uint32_t *bad) {
	auto grid = cooperative_groups::this_grid();
	for (int round = 0; round < 5; round++) {
		atomicAdd(&counts[round], 1);
		grid.sync();
		if (__atomic_load_n(&counts[round], __ATOMIC_RELAXED) != gridDim.x * blockDim.x)
			atomicAdd(bad, 1);
	}
}

void cooperation() {
	int can = 0;
	if (!GOOD(hipDeviceGetAttribute(&can, hipDeviceAttributeCooperativeLaunch, 0)))
		return;
	if (!can) {
		skipped = "the GPU has no global wave sync";
		return;
	}
	Device<uint32_t> counts(std::vector<uint32_t>(5)), bad(std::vector<uint32_t>(1));
	uint32_t *first = counts, *second = bad;
	void *arguments[] = {&first, &second};
	GOOD(hipLaunchCooperativeKernel(reinterpret_cast<void *>(meet_all), dim3(12), dim3(128), arguments, 0, nullptr));
	same("arrivals", counts.read(), std::vector<uint32_t>(5, 12 * 128));
	same("early ones", bad.read(), {0u});
}

__global__ void axpy(float a, const float *x, float *y, size_t count) {
	size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
	if (i < count)
		y[i] = a * x[i] + y[i];
}

int saxpy() {
	constexpr size_t COUNT = 1 << 18;
	hipDeviceProp_t properties = {};
	int version = 0;
	if (!GOOD(hipGetDeviceProperties(&properties, 0)) || !GOOD(hipRuntimeGetVersion(&version)))
		return fprintf(stderr, "hip: %s\n", wrong.c_str()), 1;
	std::vector<float> x(COUNT), y(COUNT);
	for (size_t i = 0; i < COUNT; i++)
		x[i] = static_cast<float>(i % 1000), y[i] = static_cast<float>(i % 77);
	size_t right = 0;
	float sample = 0;
	{
		Device<float> from(x), to(y);
		axpy<<<blocks(COUNT, 256), 256>>>(2.5f, from, to, COUNT);
		GOOD(hipGetLastError());
		const auto found = to.read();
		// Products and sums are exact.
		for (size_t i = 0; i < COUNT; i++)
			right += found[i] == 2.5f * x[i] + y[i];
		sample = found[COUNT - 1];
	}
	printf("HIP (libamdhip64 %d.%d, unmodified)\n", version / 10000000, version / 100000 % 100);
	printf("  device         %s, %s, %d compute units\n", properties.name, properties.gcnArchName,
	       properties.multiProcessorCount);
	printf("  kernel         axpy<<<%u, 256>>>: y = 2.5 x + y, compiled by hipcc\n", blocks(COUNT, 256));
	printf("  result         %zu of %zu values correct, the last one %g\n\n", right, COUNT, static_cast<double>(sample));
	if (!wrong.empty())
		fprintf(stderr, "hip: %s\n", wrong.c_str());
	return right != COUNT || !wrong.empty();
}

} // namespace

int main(int argc, char **argv) {
	if (argc > 1 && !strcmp(argv[1], "saxpy"))
		return saxpy();
	const struct {
		const char *name;
		void (*run)();
	} cases[] = {
		{"the device's properties are the topology's", device},
		{"copies and fills", copies},
		{"a sum of vectors", addition},
		{"a reduction by lanes and LDS", reduction},
		{"a histogram by atomics", histogram},
		{"private memory beyond the first allocation", scratch},
		{"launches, streams and events keep their order", order},
		{"memory of the host, during a kernel", host_memory},
		{"managed memory, sent to the GPU and back", managed},
		{"printf in a kernel", printing},
		{"a grid that synchronises", cooperation},
	};
	int number = 0, failed = 0;
	for (const auto &one : cases) {
		wrong.clear();
		skipped.clear();
		one.run();
		if (!wrong.empty())
			printf("# %s\n", wrong.c_str());
		printf("%sok %d %s%s%s\n", wrong.empty() ? "" : "not ", ++number, one.name, skipped.empty() ? "" : " # SKIP ",
		       skipped.c_str());
		fflush(stdout);
		failed += !wrong.empty();
	}
	printf("1..%d\n", number);
	return failed != 0;
}
