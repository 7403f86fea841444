#include "darkroom/encode/process_job.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "encoder_of_options.h"
#include "network_encoder.h"

namespace darkroom {
namespace {

ProcessJobOptions job_of(const ProcessOptions& options) {
  ProcessJobOptions job = options;
  job.batch_size = batch_size_of(options);
  return job;
}

}  // namespace

int default_batch_size(int resolution, const torch::Device& device) {
  const int64_t pixels = int64_t{resolution} * resolution;
  const int64_t num_large = device.is_cpu() ? 4 : 40;
  const int64_t most = device.is_cpu() ? 64 : 120;
  return static_cast<int>(std::clamp<int64_t>(num_large * 512 * 512 / std::max<int64_t>(pixels, 1), 1, most));
}

Status ProcessOptions::validate() const {
  if (input.empty() || output.empty() || model.empty()) {
    return Status::invalid_argument("the image dataset, the output folder and --model must be named");
  }
  if (batch_size < 0) {
    return Status::invalid_argument("--batch-size must not be negative, got:", batch_size);
  }
  if (dialect == LatentsDialect::kMosaicMl && dtype == torch::kFloat32) {
    return Status::invalid_argument("readers of this --output-dialect take its bytes as float16; leave --dtype float32 out:",
                                    latents_dialect_name(dialect));
  }
  return job_of(*this).validate();
}

Status run_process(StoreSet& stores, const ProcessOptions& options, std::stop_token stop, StageSummary& summary) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  const auto open = [&]() -> Result<std::unique_ptr<const ProcessEncoder>> {
    DARKROOM_ASSIGN_OR_RETURN(auto models, fetch_frozen_models(stores, options, stop));
    DARKROOM_ASSIGN_OR_RETURN(auto encoder, make_encoder(std::move(models), options));
    return std::unique_ptr<const ProcessEncoder>(std::make_unique<NetworkEncoder>(std::move(encoder), options));
  };
  return run_process_job(stores, job_of(options), open, stop, summary);
}

Result<StageSummary> run_process(StoreSet& stores, const ProcessOptions& options, std::stop_token stop) {
  StageSummary summary;
  DARKROOM_RETURN_IF_ERROR(run_process(stores, options, std::move(stop), summary));
  return summary;
}

}  // namespace darkroom
