#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "image_datasets.h"
#include "stub_encoder.h"
#include "support/source_path.h"

namespace darkroom {

/// Process jobs over small image datasets with an encoder that needs no networks.
class ProcessJob : public ImageDatasets {
 protected:
  ProcessJobOptions options(const std::string& output = "latents") const {
    ProcessJobOptions options;
    options.input = folder_.path("images");
    options.output = folder_.path(output);
    options.transform.resolution = kProcessSide;
    options.rows_per_file = 10;
    options.batch_size = 4;
    return options;
  }
  /// The shipped tokenizer, loaded once a program.
  static std::shared_ptr<const ClipTokenizer> tokenizer(TokenizerDialect dialect = TokenizerDialect::kHuggingFace) {
    static std::map<TokenizerDialect, std::shared_ptr<const ClipTokenizer>> loaded;
    auto& tokenizer = loaded[dialect];
    if (tokenizer == nullptr) {
      tokenizer = ClipTokenizer::load(local_files(), source_path("models/tiny/tokenizer"), dialect).value();
    }
    return tokenizer;
  }
  OpenProcessEncoder opener(const ProcessJobOptions& job) const {
    return [this, &job]() -> Result<std::unique_ptr<const ProcessEncoder>> {
      return std::unique_ptr<const ProcessEncoder>(std::make_unique<StubEncoder>(tokenizer(dialect_), job, networks_));
    };
  }
  Result<StageSummary> run(StoreSet& stores, const ProcessJobOptions& job, std::stop_token stop = {}) const {
    StageSummary summary;
    DARKROOM_RETURN_IF_ERROR(run_process_job(stores, job, opener(job), std::move(stop), summary));
    return summary;
  }
  StageSummary process(const ProcessJobOptions& job) {
    auto summary = run(stores_, job);
    EXPECT_TRUE(summary.is_ok()) << summary.status().to_string();
    return summary.is_ok() ? *summary : StageSummary();
  }
  Status failure(const ProcessJobOptions& job) { return run(stores_, job).status(); }

  StubNetworks networks_;
  TokenizerDialect dialect_ = TokenizerDialect::kHuggingFace;
};

}  // namespace darkroom
