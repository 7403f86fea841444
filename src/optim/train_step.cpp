#include "darkroom/optim/train_step.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/ops/adamw_update.h"
#include "darkroom/tensor/device_runtime.h"
#include "gradient_overlap.h"
#include "gradient_sum.h"
#include "recorded_step.h"
#include "step_clock.h"

namespace darkroom {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - start).count();
}

void check_losses(const torch::Tensor& losses, int64_t count) {
  DARKROOM_CHECK(losses.dim() == 1 && losses.size(0) == count, "an objective gives one loss a sample:", count);
}

// The losses of a batch's tensors by position; the tensors' first sample is number `offset` of the batch.
MicroBatchLosses by_position(const DeviceBatch& batch, int64_t offset) {
  return [&batch, offset](int64_t first, int64_t count) { return batch.losses(samples_of(batch.inputs, first - offset, count)); };
}

// One forward and backward pass that leaves the parameters' own gradients alone.
struct Pass {
  torch::Tensor losses;
  torch::autograd::variable_list gradients;  // In the order of the parameters; undefined where the loss does not depend on one.
  Clock::time_point forward_end;
};

Pass run_pass(const MicroBatchLosses& losses, int64_t first, int64_t count, int64_t batch_size,
              const std::vector<torch::Tensor>& parameters, int intra_op_threads) {
  at::set_num_threads(intra_op_threads);  // OpenMP's setting is each thread's own.
  const torch::Tensor micro_losses = losses(first, count);
  check_losses(micro_losses, count);
  const auto forward_end = Clock::now();
  const torch::Tensor share = micro_losses.sum() / static_cast<double>(batch_size);
  return {micro_losses.detach(),
          torch::autograd::grad({share}, parameters, {}, /*retain_graph=*/std::nullopt, /*create_graph=*/false, /*allow_unused=*/true),
          forward_end};
}

}  // namespace

Status TrainStepOptions::validate() const {
  if (micro_batch < 1) {
    return Status::invalid_argument("training step: micro_batch must be at least 1, got:", micro_batch);
  }
  if (gradient_groups < 1) {
    return Status::invalid_argument("training step: gradient_groups must be at least 1, got:", gradient_groups);
  }
  if (workers < 1) {
    return Status::invalid_argument("training step: workers must be at least 1, got:", workers);
  }
  if (gradient_wire != torch::kFloat32 && (gradient_wire != torch::kBFloat16 || fast_reduction)) {
    return Status::invalid_argument("training step: gradient_wire must be float32, or bfloat16 without fast_reduction, got:",
                                    c10::toString(gradient_wire));
  }
  if (bucket_elements < 1) {
    return Status::invalid_argument("training step: bucket_elements must be at least 1, got:", bucket_elements);
  }
  if (!(max_grad_norm >= 0.0 && std::isfinite(max_grad_norm))) {
    return Status::invalid_argument("training step: max_grad_norm must be at least 0, got:", max_grad_norm);
  }
  return schedule.validate();
}

TrainStep::TrainStep(FlatParameters& parameters, AdamW& optimizer, Ema* ema, const TrainStepOptions& options, Communicator& ranks)
    : parameters_(parameters), optimizer_(optimizer), ema_(ema), options_(options), ranks_(ranks) {
  const Status valid = options.validate();
  DARKROOM_CHECK(valid.is_ok(), valid.message());
  const bool is_cpu = parameters.options().device.is_cpu();
  DARKROOM_CHECK(options.workers == 1 || is_cpu, "several workers are for the CPU");
  const FlatRange slice = slice_of_rank(parameters.size(), ranks.rank(), ranks.size());
  DARKROOM_CHECK(optimizer.slice() == slice && (ema == nullptr || ema->slice() == slice),
                 "a rank updates its own slice, from:", slice.first);
  if (options.gradient_groups > 1 || ranks.size() > 1) {
    const GradientSumOptions sum{options.gradient_groups, options.fast_reduction, options.gradient_wire};
    gradient_sum_ = std::make_unique<GradientSum>(parameters, sum, ranks);
  }
  if (options.overlaps_among(ranks.size())) {
    overlap_ = std::make_unique<GradientOverlap>(parameters, *gradient_sum_, ranks, options.bucket_elements);
  }
  if (options.records_passes(parameters.options().device, ranks.size())) {
    recorded_ = std::make_unique<RecordedStep>(parameters.options().device);
  }
  if (!is_cpu) {
    clock_ = std::make_unique<StepClock>(parameters.options().device);
  }
}

TrainStep::~TrainStep() = default;

Result<StepReport> TrainStep::run(int64_t step, int64_t batch_size, const MicroBatchLosses& losses, bool wants_stop) {
  prepare(step, batch_size);
  report_.wants_stop = wants_stop;
  issue(losses);
  return finish();
}

Result<StepReport> TrainStep::run(int64_t step, const DeviceBatch& batch, bool wants_stop) {
  prepare(step, batch.size);
  report_.wants_stop = wants_stop;
  issue(batch);
  return finish();
}

Result<StepReport> TrainStep::run_ahead(int64_t step, int64_t batch_size, const MicroBatchLosses& losses) {
  DARKROOM_RETURN_IF_ERROR(make_room_ahead());
  prepare(step, batch_size);
  issue(losses);
  return leave_ahead();
}

Result<StepReport> TrainStep::run_ahead(int64_t step, const DeviceBatch& batch) {
  DARKROOM_RETURN_IF_ERROR(make_room_ahead());
  prepare(step, batch.size);
  issue(batch);
  return leave_ahead();
}

Status TrainStep::make_room_ahead() {
  DARKROOM_CHECK(ranks_.size() == 1, "several ranks look at every step (ranks):", ranks_.size());
  return static_cast<int64_t>(ahead_.size()) >= kMostAhead ? settle() : Status::ok();
}

StepReport TrainStep::leave_ahead() {
  parameters_.check_bound();
  optimizer_.count_update();
  report_.is_ahead = true;
  report_.loss = report_.grad_norm = std::nan("");
  end_step_times();
  const torch::NoGradGuard no_grad;
  ahead_.push_back({report_, losses_.clone(), squared_norm_.clone()});
  return report_;
}

Status TrainStep::settle() {
  const torch::NoGradGuard no_grad;
  was_not_finite_ = false;
  if (ahead_.empty()) {
    return {};
  }
  std::vector<torch::Tensor> losses, norms;
  for (const AheadStep& step : ahead_) {
    losses.push_back(step.losses);
    norms.push_back(step.squared_norm);
  }
  // Batches may differ in size: one long row, cut again below.
  const torch::Tensor all_losses = torch::cat(losses).cpu(), all_norms = torch::cat(norms).cpu();
  read_phase_times();
  const std::vector<AheadStep> steps = std::exchange(ahead_, {});
  int64_t first = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t count = steps[i].losses.numel();
    report_ = steps[i].report;
    report_.is_ahead = false;
    DARKROOM_RETURN_IF_ERROR(judge(all_losses.narrow(0, first, count), all_norms.const_data_ptr<double>()[i]));
    first += count;
  }
  return {};
}

// Sends the device what this step's update needs.
void TrainStep::prepare(int64_t step, int64_t batch_size) {
  DARKROOM_CHECK(batch_size > 0, "a training step needs samples:", batch_size);
  DARKROOM_CHECK(batch_size % options_.gradient_groups == 0, "gradient groups are equal parts of a batch (batch, groups):", batch_size,
                 options_.gradient_groups);
  begin_step();
  report_ = {};
  ranks_failure_ = {};
  report_.step = step;
  report_.learning_rate = learning_rate_at(options_.schedule, step);
  const torch::Device device = parameters_.values().device();
  if (!losses_.defined() || losses_.numel() != batch_size) {
    if (recorded_ != nullptr && losses_.defined()) {
      recorded_->forget();
    }
    losses_ = torch::empty({batch_size}, torch::dtype(torch::kFloat32).device(device));
    losses_staging_ = empty_staging({batch_size}, torch::kFloat32, device);
  }
  if (!squared_norm_.defined()) {
    squared_norm_ = torch::empty({1}, torch::dtype(torch::kFloat64).device(device));
    squared_norm_staging_ = empty_staging({1}, torch::kFloat64, device);
  }
  if (ranks_.size() > 1 && !stop_votes_.defined()) {
    stop_votes_ = torch::empty({1}, torch::dtype(torch::kFloat64).device(device));
    stop_votes_staging_ = empty_staging({1}, torch::kFloat64, device);
  }
  optimizer_.prepare(report_.learning_rate, options_.max_grad_norm, ema_);
}

void TrainStep::issue(const MicroBatchLosses& losses) {
  begin_passes();
  if (options_.workers > 1 && passes().size() > 1) {  // A lone pass needs no gradients beside the parameters' own.
    accumulate_side_by_side(losses);
  } else {
    accumulate(losses);
  }
  ranks_failure_ = update();
}

void TrainStep::issue(const DeviceBatch& batch) {
  if (recorded_ == nullptr) {
    issue(by_position(batch, first_own_sample()));
    return;
  }
  begin_passes();
  accumulate_recorded(batch);
  ranks_failure_ = update();
}

void TrainStep::begin_passes() {
  if (clock_ != nullptr) {
    clock_->begin_passes();
  }
  phase_start_ = Clock::now();
  parameters_.zero_gradients();
  if (gradient_sum_ != nullptr) {
    gradient_sum_->begin();
  }
}

GroupSpan TrainStep::own_groups() const { return gradient_sum_ == nullptr ? GroupSpan{0, 1} : gradient_sum_->run(); }

int64_t TrainStep::first_own_sample() const { return own_groups().first * (losses_.numel() / options_.gradient_groups); }

// Micro-batches of this rank's groups, in order.
std::vector<TrainStep::PassSpan> TrainStep::passes() const {
  const GroupSpan run = own_groups();
  const int64_t group_size = losses_.numel() / options_.gradient_groups;
  std::vector<PassSpan> passes;
  for (int64_t group = run.first; group < run.end(); ++group) {
    for (int64_t done = 0; done < group_size; done += options_.micro_batch) {
      const int64_t count = std::min(options_.micro_batch, group_size - done);
      passes.push_back({group * group_size + done, count, group, done + count == group_size});
    }
  }
  return passes;
}

void TrainStep::pass_backward(const torch::Tensor& loss, bool is_last) {
  if (is_last && overlap_ != nullptr) {
    overlap_->begin_last_pass();
  }
  loss.backward();
}

void TrainStep::end_pass(const PassSpan& pass) {
  if (gradient_sum_ != nullptr && pass.ends_group) {
    gradient_sum_->close_group(pass.group);
  }
}

void TrainStep::accumulate(const MicroBatchLosses& losses) {
  const auto batch_size = static_cast<double>(losses_.numel());
  const std::vector<PassSpan> spans = passes();
  for (const PassSpan& pass : spans) {
    const torch::Tensor micro_losses = losses(pass.first, pass.count);
    check_losses(micro_losses, pass.count);
    losses_.narrow(0, pass.first, pass.count).copy_(micro_losses.detach());
    end_phase(report_.forward_ms, StepPart::kForward);
    pass_backward(micro_losses.sum() / batch_size, &pass == &spans.back());
    end_pass(pass);
    end_phase(report_.backward_ms, StepPart::kBackward);
  }
}

void TrainStep::accumulate_recorded(const DeviceBatch& batch) {
  for (const PassSpan& pass : passes()) {
    recorded_->run_pass(batch, pass.first - first_own_sample(), losses_.narrow(0, pass.first, pass.count));
    end_pass(pass);
  }
  end_phase(report_.backward_ms, StepPart::kPasses);
}

// Gradients are added in the order of the micro-batches, as accumulate() does, whoever is ready first.
void TrainStep::accumulate_side_by_side(const MicroBatchLosses& losses) {
  const int64_t batch_size = losses_.numel();
  const int intra_op_threads = at::get_num_threads();
  const std::vector<PassSpan> spans = passes();
  const auto num_passes = static_cast<int64_t>(spans.size());
  for (int64_t wave = 0; wave < num_passes; wave += options_.workers) {
    std::vector<std::future<Pass>> running;
    for (int64_t pass = wave; pass < std::min(wave + options_.workers, num_passes); ++pass) {
      running.push_back(std::async(std::launch::async, [=, this, &losses, span = spans[static_cast<size_t>(pass)]] {
        return run_pass(losses, span.first, span.count, batch_size, parameters_.parameters(), intra_op_threads);
      }));
    }
    Clock::time_point forward_end = phase_start_;
    for (size_t i = 0; i < running.size(); ++i) {
      const Pass pass = running[i].get();
      const PassSpan& span = spans[static_cast<size_t>(wave) + i];
      losses_.narrow(0, span.first, span.count).copy_(pass.losses);
      parameters_.add_gradients(pass.gradients);
      end_pass(span);
      forward_end = std::max(forward_end, pass.forward_end);
    }
    report_.forward_ms += milliseconds_between(phase_start_, forward_end);
    phase_start_ = forward_end;
    end_phase(report_.backward_ms, StepPart::kBackward);
  }
}

// With the whole gradient of this rank's slice, the whole norm and all losses. Changes no weight when a loss or the norm is not finite.
Status TrainStep::update() {
  if (gradient_sum_ != nullptr) {
    DARKROOM_RETURN_IF_ERROR(overlap_ != nullptr ? overlap_->finish() : gradient_sum_->finish());
  }
  if (ranks_.size() == 1) {
    update_alone();
  } else {
    DARKROOM_RETURN_IF_ERROR(exchange_figures());
    optimizer_.issue(squared_norm_, losses_, ema_);
    DARKROOM_RETURN_IF_ERROR(gather_weights(ranks_, parameters_));
  }
  end_phase(report_.update_ms, StepPart::kUpdate);
  return {};
}

void TrainStep::update_alone() {
  const auto update = [this] {
    const torch::NoGradGuard no_grad;
    squared_norm_.copy_(squared_norm(parameters_.gradients()));
    optimizer_.issue(squared_norm_, losses_, ema_);
  };
  recorded_ != nullptr ? recorded_->run_update(update) : update();
}

// One message a rank: its wish to stop, its losses, the partial sums of squares of its slice, which is whole chunks. Everybody then
// computes the same from the same numbers.
Status TrainStep::exchange_figures() {
  const torch::NoGradGuard no_grad;
  const torch::Tensor own_partials = norm_partials(optimizer_.slice().of(parameters_.gradients()));
  std::vector<FlatRange> samples;
  std::vector<torch::Tensor> parts;
  for (int64_t rank = 0; rank < ranks_.size(); ++rank) {
    const GroupSpan run = groups_of_rank(options_.gradient_groups, rank, ranks_.size());
    const int64_t group_size = losses_.numel() / options_.gradient_groups;
    samples.push_back({run.first * group_size, run.count * group_size});
    const int64_t slice_size = slice_of_rank(parameters_.size(), rank, ranks_.size()).count;
    parts.push_back(torch::empty({1 + samples.back().count + (slice_size + kNormChunk - 1) / kNormChunk}, stop_votes_.options()));
  }
  const auto rank = static_cast<size_t>(ranks_.rank());
  parts[rank].copy_(
      torch::cat({stop_votes_.fill_(report_.wants_stop ? 1.0 : 0.0), samples[rank].of(losses_).to(torch::kFloat64), own_partials}));
  DARKROOM_RETURN_IF_ERROR(all_gather(ranks_, parts));
  std::vector<torch::Tensor> votes, partials;
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t first_partial = 1 + samples[i].count;
    votes.push_back(parts[i].narrow(0, 0, 1));
    samples[i].of(losses_).copy_(parts[i].narrow(0, 1, samples[i].count));
    partials.push_back(parts[i].narrow(0, first_partial, parts[i].numel() - first_partial));
  }
  stop_votes_.copy_(torch::cat(votes).sum(0, /*keepdim=*/true));
  squared_norm_.copy_(add_norm_partials(torch::cat(partials)));
  return {};
}

// Waits for the device and reads losses and norm.
Result<StepReport> TrainStep::finish() {
  was_not_finite_ = false;
  DARKROOM_RETURN_IF_ERROR(ranks_failure_);
  parameters_.check_bound();
  end_step_times();
  losses_staging_.copy_(losses_, /*non_blocking=*/true);
  squared_norm_staging_.copy_(squared_norm_, /*non_blocking=*/true);
  if (ranks_.size() > 1) {
    stop_votes_staging_.copy_(stop_votes_, /*non_blocking=*/true);
  }
  synchronize(losses_.device());
  DARKROOM_RETURN_IF_ERROR(ranks_.exchange({}, {}));  // Whether what GPUs exchanged came.
  const auto waited = Clock::now();
  report_.wait_ms = milliseconds_between(phase_start_, waited);
  phase_start_ = waited;
  read_phase_times();
  report_.wants_stop = report_.wants_stop || (ranks_.size() > 1 && stop_votes_staging_.item<double>() > 0.0);
  const StepReport own = report_;
  DARKROOM_RETURN_IF_ERROR(settle());
  report_ = own;
  DARKROOM_RETURN_IF_ERROR(judge(losses_staging_, squared_norm_staging_.item<double>()));
  optimizer_.count_update();
  return report_;
}

// Writes a step's figures into the report. Errors: as run().
Status TrainStep::judge(const torch::Tensor& losses, double squared_norm) {
  report_.loss = sum_losses(losses) / static_cast<double>(losses.numel());
  report_.grad_norm = std::sqrt(squared_norm);
  was_not_finite_ = !std::isfinite(report_.loss) || !std::isfinite(report_.grad_norm);
  if (!std::isfinite(report_.loss)) {
    return Status::failed_precondition(
        "training: the loss is not finite; look at the data, or lower the learning rate (step, loss):", report_.step, report_.loss);
  }
  if (!std::isfinite(report_.grad_norm)) {
    return Status::failed_precondition("training: the gradient is not finite; lower the learning rate (step, norm):", report_.step,
                                       report_.grad_norm);
  }
  return {};
}

double TrainStep::sum_losses(const torch::Tensor& losses) {
  non_finite_samples_.clear();
  double sum = 0.0;
  for (int64_t i = 0; i < losses.numel(); ++i) {
    const float loss = losses.const_data_ptr<float>()[i];
    if (!std::isfinite(loss)) {
      non_finite_samples_.push_back(i);
    }
    sum += static_cast<double>(loss);
  }
  return sum;
}

// A CPU is done with the step, and a GPU has been asked for all of it.
void TrainStep::end_step_times() {
  if (clock_ != nullptr) {
    clock_->end_step(report_.step);
    return;
  }
  phase_times_.push_back(
      {.step = report_.step, .forward_ms = report_.forward_ms, .backward_ms = report_.backward_ms, .update_ms = report_.update_ms});
  bound_phase_times();
}

// A GPU is done with what it was asked for.
void TrainStep::read_phase_times() {
  if (clock_ != nullptr) {
    const std::vector<PhaseTimes> steps = clock_->read(recorded_ == nullptr ? 0 : recorded_->forward_share());
    phase_times_.insert(phase_times_.end(), steps.begin(), steps.end());
    bound_phase_times();
  }
}

void TrainStep::bound_phase_times() {
  if (const auto count = static_cast<int64_t>(phase_times_.size()); count > 2 * kMostAhead) {
    phase_times_.erase(phase_times_.begin(), phase_times_.begin() + (count - 2 * kMostAhead));
  }
}

void TrainStep::begin_step() {
  if (clock_ != nullptr) {
    clock_->begin();
  }
}

void TrainStep::end_phase(double& phase_ms, StepPart part) {
  if (clock_ != nullptr) {
    clock_->end_part(part);
  }
  if (options_.waits_between_phases) {
    synchronize(losses_.device());
  }
  const auto now = Clock::now();
  phase_ms += milliseconds_between(phase_start_, now);
  phase_start_ = now;
}

}  // namespace darkroom
