#pragma once

#include <arrow/api.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/image/png.h"
#include "darkroom/ingest/download_job.h"
#include "darkroom/tables/table_footer.h"
#include "darkroom/tables/table_reader.h"
#include "support/stub_dns.h"
#include "support/temporary_folder.h"
#include "troubled_web/troubled_web.h"

namespace darkroom {

/// A small PNG that differs with `number`; about half a kilobyte.
inline std::string numbered_png(int number, int width = 40, int height = 36) {
  Image image = Image::filled(width, height, 3, static_cast<uint8_t>(number * 37));
  for (size_t i = 0; i < image.pixels.size(); i += 7) {
    image.pixels[i] = static_cast<uint8_t>(i * 31 + static_cast<size_t>(number) * 101);
  }
  return encode_png(image);
}

inline void write_bytes(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

inline std::string read_bytes(const std::string& path) { return *read_file(local_files(), path); }

/// The bytes of every part of a dataset, by name.
inline std::map<std::string, std::string> part_bytes(const std::string& folder) {
  std::map<std::string, std::string> parts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("part-")) {
      parts[entry.path().filename()] = read_bytes(entry.path());
    }
  }
  return parts;
}

/// All rows of a parquet file as one table.
inline std::shared_ptr<arrow::Table> read_table(const std::string& path) {
  auto reader = open_table(local_files(), path);
  EXPECT_TRUE(reader.is_ok()) << reader.status().to_string();
  auto range = (*reader)->read_rows(0, *(*reader)->num_rows(), {});
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
  while (auto batch = *(*range)->next()) {
    batches.push_back(batch);
  }
  return *(*arrow::Table::FromRecordBatches((*reader)->schema(), batches))->CombineChunks();
}

/// The values of a text or binary column; "(null)" for null.
inline std::vector<std::string> texts(const arrow::Table& table, const std::string& column) {
  std::vector<std::string> values;
  const auto chunks = table.GetColumnByName(column);
  for (int chunk = 0; chunk < chunks->num_chunks(); ++chunk) {
    const auto& array = static_cast<const arrow::BinaryArray&>(*chunks->chunk(chunk));
    for (int64_t i = 0; i < array.length(); ++i) {
      values.push_back(array.IsNull(i) ? "(null)" : array.GetString(i));
    }
  }
  return values;
}

/// A web with pictures and troubles, and a URL table that lists them.
class DownloadWeb {
 public:
  struct Row {
    std::string url;
    std::string caption;
    double punsafe = 0;
  };

  /// Adds a good picture to the web and the table.
  void add_picture(int number) {
    const std::string name = "picture" + std::to_string(number) + ".png";
    write_bytes(folder_.path(name), numbered_png(number));
    add_row(name, {{"file", name}}, "picture number " + std::to_string(number));
  }
  /// Adds a route with a trouble and lists it.
  void add_trouble(const std::string& route, nlohmann::json fields, const std::string& caption = "trouble") {
    if (!fields.contains("file")) {
      fields["file"] = "picture0.png";
    }
    add_row(route, std::move(fields), caption);
  }
  void add_file(const std::string& name, const std::string& bytes) { write_bytes(folder_.path(name), bytes); }
  /// Lists a URL that is not of this web.
  void add_url(const std::string& url, const std::string& caption) { rows_.push_back({url, caption}); }

  void start() {
    write_bytes(folder_.path("web.json"), nlohmann::json{{"routes", routes_}}.dump());
    auto web = TroubledWeb::start(folder_.path());
    ASSERT_TRUE(web.is_ok()) << web.status().to_string();
    web_ = *std::move(web);
    write_table(folder_.path("urls.jsonl"), 0, rows_.size());
  }
  /// Writes rows [first, end) of the list as JSON lines.
  void write_table(const std::string& path, size_t first, size_t end) const {
    std::string text;
    for (size_t i = first; i < end; ++i) {
      const bool is_route = rows_[i].url.starts_with("/");
      text +=
          nlohmann::json{
              {"URL", is_route ? web_->url() + rows_[i].url : rows_[i].url}, {"TEXT", rows_[i].caption}, {"WIDTH", i}, {"punsafe", 0.25}}
              .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
          "\n";
    }
    write_bytes(path, text);
  }

  TroubledWeb& web() { return *web_; }
  size_t num_rows() const { return rows_.size(); }
  std::string table() const { return folder_.path("urls.jsonl"); }

  /// Options that reach this web, with short waits.
  DownloadOptions options(const std::string& output) const {
    DownloadOptions options;
    options.output = output;
    options.metadata = {table()};
    options.rows_per_file = 10;
    options.fetch.num_concurrent = 16;
    options.fetch.timeout = std::chrono::seconds(60);
    options.fetch.first_backoff = std::chrono::milliseconds(5);
    options.fetch.allow_private = {*AllowedNetwork::parse("127.0.0.1:" + std::to_string(web_->port()))};
    options.fetch.resolver.servers = {names_.server()};
    options.fetch.network.probe_after = std::chrono::milliseconds(20);
    return options;
  }

 private:
  void add_row(const std::string& route, nlohmann::json fields, const std::string& caption) {
    routes_["/" + route] = std::move(fields);
    rows_.push_back({"/" + route, caption});
  }

  TemporaryFolder folder_;
  StubDns names_{[](const StubDns::Question&) { return StubDns::Answer{.rcode = 3}; }};  // No name is known.
  nlohmann::json routes_ = nlohmann::json::object();
  std::vector<Row> rows_;
  std::unique_ptr<TroubledWeb> web_;
};

}  // namespace darkroom
