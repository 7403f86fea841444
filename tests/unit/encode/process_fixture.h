#pragma once

#include <string>

#include "darkroom/encode/process_job.h"
#include "tiny_models.h"
#include "unit/process/image_datasets.h"

namespace darkroom {

/// Process jobs over small image datasets and the tiny model.
class ProcessJob : public ImageDatasets {
 protected:
  static void SetUpTestSuite() { models_ = new TinyModelFolder(); }
  static void TearDownTestSuite() {
    delete models_;
    models_ = nullptr;
  }

  ProcessOptions options(const std::string& output = "latents") const {
    ProcessOptions options;
    options.input = folder_.path("images");
    options.output = folder_.path(output);
    options.model = models_->path();
    options.transform.resolution = kProcessSide;
    options.rows_per_file = 10;
    options.batch_size = 4;
    return options;
  }
  StageSummary process(const ProcessOptions& options) {
    auto summary = run_process(stores_, options, {});
    EXPECT_TRUE(summary.is_ok()) << summary.status().to_string();
    return summary.is_ok() ? *summary : StageSummary();
  }
  Status failure(const ProcessOptions& options) { return run_process(stores_, options, {}).status(); }

  inline static TinyModelFolder* models_ = nullptr;
};

}  // namespace darkroom
