#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "darkroom/ops/operation_table.h"
#include "darkroom/tensor/cuda_plugin.h"
#include "darkroom/tensor/device_event.h"
#include "fake_device.h"
#include "fake_fault.h"
#include "fake_kernels.h"
#include "fake_memory.h"
#include "fake_ranks.h"
#include "fake_runtime.h"
#include "fake_stream.h"

namespace darkroom {
namespace {

using Views = std::vector<torch::Tensor>;

constexpr uint64_t kMemoryBytes = uint64_t{1} << 34;

const OperationTable* cpu_operations = nullptr;  // The program's references.

// A mistake of a training step that is asked for by name: what the device is there to find.
void make_mistake(std::string_view operation, const torch::Tensor& device_tensor) {
  const auto& [name, place] = fake::asked_fault();
  if ((place.empty() ? "norm_partials" : place) != operation) {
    return;
  }
  if (name == "item") {
    (void)device_tensor.flatten()[0].item<float>();
  } else if (name == "event") {
    DeviceEvent just_recorded(device_tensor.device());
    just_recorded.record();
    just_recorded.synchronize();
  } else if (name == "forgotten_to") {
    (void)(device_tensor + torch::ones(device_tensor.sizes()));
  } else if (name == "host_read") {
    (void)*static_cast<const volatile char*>(device_tensor.const_data_ptr());
  }
}

void counter_normal(torch::Tensor& out, uint64_t seed, uint8_t purpose, const torch::Tensor& coordinates_n2) {
  make_mistake("counter_normal", out);
  fake::launch("counter_normal", {out}, {coordinates_n2},
               [=](Views& views) { cpu_operations->counter_normal(views[0], seed, purpose, views[1]); });
}

torch::Tensor norm_partials(const torch::Tensor& flat) {
  make_mistake("norm_partials", flat);
  const torch::Tensor sums = torch::empty({(flat.numel() + kNormChunk - 1) / kNormChunk}, flat.options().dtype(torch::kFloat64));
  fake::launch("norm_partials", {sums}, {flat}, [](Views& views) { views[0].copy_(cpu_operations->norm_partials(views[1])); });
  return sums;
}

torch::Tensor add_norm_partials(const torch::Tensor& partials) {
  const torch::Tensor sum = torch::empty({1}, partials.options());
  fake::launch("add_norm_partials", {sum}, {partials}, [](Views& views) { views[0].copy_(cpu_operations->add_norm_partials(views[1])); });
  return sum;
}

void clip_scale(const torch::Tensor& squared_norm, const torch::Tensor& losses, const torch::Tensor& scalars) {
  fake::launch("clip_scale", {scalars}, {squared_norm, losses},
               [](Views& views) { cpu_operations->clip_scale(views[1], views[2], views[0]); });
}

void adamw_update(const AdamWArrays& arrays, const torch::Tensor& scalars) {
  fake::launch("adamw_update", {arrays.weights, arrays.first_moment, arrays.second_moment, arrays.ema, arrays.compute},
               {arrays.gradients, scalars}, [](Views& views) {
                 cpu_operations->adamw_update({views[0], views[5], views[1], views[2], views[3], views[4]}, views[6]);
               });
}

// The references of the group norm lay out what is not the CPU's as GPUs' kernels want it; these, the same operations, as the CPU's do.
torch::Tensor in_layout_of(const torch::Tensor& x, const torch::Tensor& tensor) { return tensor.contiguous(x.suggest_memory_format()); }

template <bool kWithSilu>
ForwardResult norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, const GroupNormSettings& settings) {
  const torch::Tensor input = in_layout_of(x, x);
  const auto [value, mean, rstd] = at::native_group_norm(input, weight, bias, x.size(0), x.size(1),
                                                         c10::multiply_integers(x.sizes().slice(2)), settings.num_groups, settings.eps);
  return kWithSilu ? ForwardResult{at::silu(value), {input, weight, mean, rstd, value}} : ForwardResult{value, {input, weight, mean, rstd}};
}

template <bool kWithSilu>
std::array<torch::Tensor, 3> norm_backward(const torch::Tensor& grad, const std::vector<torch::Tensor>& saved,
                                           const GroupNormSettings& settings, std::array<bool, 3> wanted) {
  const torch::Tensor& x = saved[0];
  const torch::Tensor of_norm = in_layout_of(x, kWithSilu ? at::silu_backward(grad, saved[4]) : grad);
  const auto [grad_x, grad_weight, grad_bias] =
      at::native_group_norm_backward(of_norm, x, saved[2], saved[3], saved[1], x.size(0), x.size(1),
                                     c10::multiply_integers(x.sizes().slice(2)), settings.num_groups, wanted);
  return {grad_x, grad_weight, grad_bias};
}

// Those that are written in torch's operations run on the device as they are; those that are loops get CPU views.
const OperationTable* fake_operations(const OperationTable& references) {
  static OperationTable table = references;
  cpu_operations = &references;
  table.counter_normal = counter_normal;
  table.group_norm = norm<false>;
  table.group_norm_backward = norm_backward<false>;
  table.group_norm_silu = norm<true>;
  table.group_norm_silu_backward = norm_backward<true>;
  table.norm_partials = norm_partials;
  table.add_norm_partials = add_norm_partials;
  table.clip_scale = clip_scale;
  table.adamw_update = adamw_update;
  return &table;
}

class FakeGraphRecorder final : public GraphRecorder {
 public:
  // What was recorded in one memory.
  using Pool = std::vector<std::weak_ptr<const fake::Recording>>;

  explicit FakeGraphRecorder(std::shared_ptr<Pool> pool) : pool_(std::move(pool)) {}

  void run(const std::function<void()>& run) override { fake::run_on_recording_stream(run); }
  void record(const std::function<void()>& run) override {
    recording_ = std::make_shared<const fake::Recording>(fake::record(run));
    pool_->push_back(recording_);
  }
  void replay() override {
    for (const auto& each : *pool_) {
      if (const auto other = each.lock(); other != nullptr && other != recording_) {
        fake::spoil(*other);
      }
    }
    fake::replay(*recording_);
  }
  std::unique_ptr<GraphRecorder> beside() const override { return std::make_unique<FakeGraphRecorder>(pool_); }

 private:
  std::shared_ptr<Pool> pool_;
  std::shared_ptr<const fake::Recording> recording_;
};

// The fake device's clock: a microsecond for each kernel and each copy, whenever they run, so that times are the same in every run.
class FakeMark final : public GpuMark {
 public:
  void record() override {
    const auto come = [this] { microseconds_ = fake::elapsed_microseconds(); };
    fake::is_recording() ? fake::add_to_recording(come) : come();
  }
  double ms_since(const GpuMark& earlier) const override {
    const int64_t since = dynamic_cast<const FakeMark&>(earlier).microseconds_;
    TORCH_CHECK(since >= 0 && microseconds_ >= 0, "fake device: the time of a place that it has not come to");
    return 1e-3 * static_cast<double>(microseconds_ - since);
  }

 private:
  int64_t microseconds_ = -1;
};

bool list_fake_gpus(std::vector<GpuInfo>& gpus, std::string& /*reason*/) {
  fake::register_runtime();
  fake::register_kernels();
  gpus.push_back({"fake device", kMemoryBytes, 9, 0});
  return true;
}

int64_t peak_bytes(int /*gpu*/) {
  const std::lock_guard lock(fake::device_lock());
  return fake::counts().peak_bytes;
}

void reset_peak(int /*gpu*/) {
  const std::lock_guard lock(fake::device_lock());
  fake::counts().peak_bytes = fake::counts().live_bytes;
}

constexpr CudaPlugin kPlugin = {.version = kCudaPluginVersion,
                                .list_gpus = list_fake_gpus,
                                .synchronize = [](int /*gpu*/) { fake::synchronize("synchronize", fake::whole_clock()); },
                                .peak_memory_bytes = peak_bytes,
                                .reset_peak_memory = reset_peak,
                                .make_graph_recorder = [](int /*gpu*/) -> std::unique_ptr<GraphRecorder> {
                                  return std::make_unique<FakeGraphRecorder>(std::make_shared<FakeGraphRecorder::Pool>());
                                },
                                .make_mark = [](int /*gpu*/) -> std::unique_ptr<GpuMark> { return std::make_unique<FakeMark>(); },
                                .operations = fake_operations,
                                .make_gpu_ranks_id = fake::make_ranks_id,
                                .join_gpu_ranks = fake::join_ranks};

void write_counts(std::FILE* file) {
  const FakeDeviceCounts& counts = fake::counts();
  const std::pair<const char*, int64_t> figures[] = {{"host_to_device", counts.host_to_device},
                                                     {"host_to_device_bytes", counts.host_to_device_bytes},
                                                     {"device_to_host", counts.device_to_host},
                                                     {"device_to_device", counts.device_to_device},
                                                     {"synchronisations", counts.synchronisations},
                                                     {"event_waits", counts.event_waits},
                                                     {"late_waits", counts.late_waits},
                                                     {"stream_waits", counts.stream_waits},
                                                     {"kernels", counts.kernels},
                                                     {"recordings", counts.recordings},
                                                     {"replays", counts.replays},
                                                     {"live_bytes", counts.live_bytes},
                                                     {"peak_bytes", counts.peak_bytes}};
  std::fputs("{", file);
  for (const auto& [name, value] : figures) {
    std::fprintf(file, "\"%s\": %lld, ", name, static_cast<long long>(value));
  }
  std::fputs("\"waits\": {", file);
  const char* separator = "";
  for (const auto& [name, count] : fake::waits_by_name()) {
    std::fprintf(file, "%s\"%s\": %lld", separator, name.c_str(), static_cast<long long>(count));
    separator = ", ";
  }
  std::fputs("}}\n", file);
}

void write_counts_file() {
  const char* path = std::getenv(kFakeDeviceCountsVariable);
  if (std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "w"); file != nullptr) {
    write_counts(file);
    std::fclose(file);
  }
}

// At the process's end, whichever way it takes.
const bool writes_counts = std::atexit(write_counts_file) == 0 && std::at_quick_exit(write_counts_file) == 0;

}  // namespace
}  // namespace darkroom

extern "C" {
__attribute__((visibility("default"))) const darkroom::CudaPlugin* darkroom_cuda_plugin() { return &darkroom::kPlugin; }
__attribute__((visibility("default"))) const darkroom::FakeDeviceCounts* darkroom_fake_device_counts() { return &darkroom::fake::counts(); }
__attribute__((visibility("default"))) void darkroom_fake_device_bound(int64_t num_bytes) {
  const std::lock_guard lock(darkroom::fake::device_lock());
  darkroom::fake::memory_bound() = num_bytes;
}
}
