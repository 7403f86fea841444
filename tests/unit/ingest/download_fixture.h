#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/files/fault_files.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/ingest/download_job.h"
#include "support/download_web.h"
#include "support/other_stores.h"

namespace darkroom {

/// Downloads from a web server of the test's into a folder of its own.
class DownloadTest : public ::testing::Test {
 protected:
  void add_pictures(int num_pictures) {
    for (int i = 0; i < num_pictures; ++i) {
      web_.add_picture(i);
    }
  }
  std::string output(const std::string& name = "images") const { return folder_.path(name); }
  StageSummary download(const DownloadOptions& options) {
    auto summary = run_download(stores_, options, {});
    EXPECT_TRUE(summary.is_ok()) << summary.status().to_string();
    return summary.is_ok() ? *summary : StageSummary();
  }
  Status failure(const DownloadOptions& options) { return run_download(stores_, options, {}).status(); }
  /// The same place, by way of files_.
  std::string faulty(const std::string& path) const { return "faulty://" + path; }
  static std::vector<std::string> names_of(const std::map<std::string, std::string>& parts) {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : parts) {
      names.push_back(name);
    }
    return names;
  }

  TemporaryFolder folder_;
  DownloadWeb web_;
  MetricsRegistry metrics_;
  FaultInjectingFileSystem files_{local_files()};  // What faulty() names.
  const std::unique_ptr<Store> faulty_store_ = make_posix_store(files_, "faulty");
  StoreSet stores_{with_other_stores({faulty_store_.get()}), system_clock(), metrics_};
};

}  // namespace darkroom
