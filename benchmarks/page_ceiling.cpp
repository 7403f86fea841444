#include <arrow/api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/tables/paged_shard_writer.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/tables/tensor_column.h"
#include "darkroom/tables/verify_shard.h"

// Shards (PagedShardWriter) against the bare write of the same bytes, in turn: page_ceiling FOLDER [ROUNDS]. Pictures of 132 kB as download
// writes them, and text states in half precision as process does. CPU seconds of the process, publishing included. Every file is read back
// and compared before its time counts.
namespace {

using namespace darkroom;

constexpr int kRows = 768;
constexpr size_t kBodyBytes = 132'000;
constexpr size_t kNumBodies = 256;  // 34 MB: they come from memory, not from a cache.
constexpr int kBatchRows = 32;      // 4 MiB, as download flushes.
constexpr int64_t kTensorElements = 77 * 1024;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void check(const arrow::Status& status) { DARKROOM_CHECK(status.ok(), "Arrow failed:", status.ToString()); }

std::vector<std::string> make_bodies() {
  std::mt19937_64 random(1);
  std::vector<std::string> bodies(kNumBodies, std::string(kBodyBytes, '\0'));
  for (std::string& body : bodies) {
    std::generate(body.begin(), body.end(), [&] { return static_cast<char>(random()); });
  }
  return bodies;
}

const std::vector<std::string>& bodies() {
  static const std::vector<std::string> made = make_bodies();
  return made;
}

const std::string& body_of(int row) { return bodies()[static_cast<size_t>(row) % kNumBodies]; }

std::shared_ptr<arrow::Schema> picture_schema() {
  return arrow::schema({arrow::field("image", arrow::binary()), arrow::field("key", arrow::utf8(), false),
                        arrow::field("url", arrow::utf8(), false), arrow::field("width", arrow::int32())});
}

arrow::ArrayVector other_columns(int first, int count) {
  arrow::StringBuilder keys;
  arrow::StringBuilder urls;
  arrow::Int32Builder widths;
  for (int row = first; row < first + count; ++row) {
    check(keys.Append(fmt::format("{:012}", row)));
    check(urls.Append(fmt::format("https://host-{}.example/pictures/{}.jpg", row % 97, row)));
    check(widths.Append(row));
  }
  return {keys.Finish().ValueOrDie(), urls.Finish().ValueOrDie(), widths.Finish().ValueOrDie()};
}

void write_pictures(const std::string& folder, const std::string& name) {
  auto object = local_store().begin_object(folder, name).value();
  auto writer = PagedShardWriter::open(std::move(object), picture_schema(), {.streamed_column = "image"}).value();
  const arrow::FieldVector fields = picture_schema()->fields();
  const auto others = arrow::schema(arrow::FieldVector(fields.begin() + 1, fields.end()));
  for (int first = 0; first < kRows; first += kBatchRows) {
    std::vector<BorrowedValue> images;
    for (int row = first; row < first + kBatchRows; ++row) {
      images.push_back(std::as_bytes(std::span(body_of(row))));
    }
    const auto batch = arrow::RecordBatch::Make(others, kBatchRows, other_columns(first, kBatchRows));
    DARKROOM_CHECK(writer->write(*batch, images).is_ok(), "a write failed");
  }
  (void)writer->finish({}).value().object->publish().value();
}

/// No format, no hash: what is left to gain.
void write_bare(const std::string& folder, const std::string& name) {
  auto object = local_store().begin_object(folder, name).value();
  for (int row = 0; row < kRows; ++row) {
    DARKROOM_CHECK(object->write(std::as_bytes(std::span(body_of(row)))).is_ok(), "a write failed");
  }
  (void)object->publish().value();
}

std::shared_ptr<arrow::RecordBatch> tensor_rows() {
  static const auto made = [] {
    std::mt19937_64 random(2);
    std::vector<uint16_t> halves(static_cast<size_t>(kTensorElements * kRows));
    std::generate(halves.begin(), halves.end(), [&] { return half_bits(static_cast<float>(random() % 4096) / 1024 - 2); });
    const auto states = make_tensor_column(TensorElement::kFloat16, {77, 1024}, std::as_bytes(std::span(halves))).value();
    return arrow::RecordBatch::Make(arrow::schema({arrow::field("states", states->type())}), kRows, {states});
  }();
  return made;
}

void write_tensors(const std::string& folder, const std::string& name) {
  auto object = local_store().begin_object(folder, name).value();
  auto writer = PagedShardWriter::open(std::move(object), tensor_rows()->schema()).value();
  DARKROOM_CHECK(writer->write(*tensor_rows()).is_ok(), "a write failed");
  (void)writer->finish({}).value().object->publish().value();
}

/// Calls `visit` with every batch of a shard that verify_shard finds whole.
void read_shard(const std::string& path, const std::function<void(const arrow::RecordBatch&)>& visit) {
  DARKROOM_CHECK(verify_shard(local_files(), path).is_ok(), "the shard is not whole (path):", path);
  auto table = open_table(local_files(), path).value();
  auto range = table->read_rows(0, kRows, {}, {}).value();
  while (const auto batch = range->next().value()) {
    visit(*batch);
  }
}

void check_pictures(const std::string& path) {
  int row = 0;
  read_shard(path, [&](const arrow::RecordBatch& batch) {
    const auto& images = static_cast<const arrow::BinaryArray&>(*batch.GetColumnByName("image"));
    const auto& widths = static_cast<const arrow::Int32Array&>(*batch.GetColumnByName("width"));
    for (int64_t i = 0; i < batch.num_rows(); ++i, ++row) {
      DARKROOM_CHECK(images.GetView(i) == body_of(row) && widths.Value(i) == row, "a row differs (path, row):", path, row);
    }
  });
  DARKROOM_CHECK(row == kRows, "rows are missing (path, got):", path, row);
}

void check_tensors(const std::string& path) {
  int64_t row = 0;
  read_shard(path, [&](const arrow::RecordBatch& batch) {
    DARKROOM_CHECK(batch.column(0)->Equals(tensor_rows()->column(0)->Slice(row, batch.num_rows())), "a row differs (path, row):", path,
                   row);
    row += batch.num_rows();
  });
  DARKROOM_CHECK(row == kRows, "rows are missing (path, got):", path, row);
}

struct Contender {
  std::string name;
  std::function<void(const std::string& folder, const std::string& name)> write;
  std::function<void(const std::string& path)> check_answer;
  std::vector<double> rates = {};  ///< Rows a CPU second, a round each.
};

void time_once(Contender& contender, const std::string& folder) {
  const std::string path = folder + "/page_ceiling.parquet";
  (void)local_files().remove_tree(path);
  const double begin = cpu_seconds();
  contender.write(folder, "page_ceiling.parquet");
  const double seconds = cpu_seconds() - begin;
  contender.check_answer(path);
  contender.rates.push_back(kRows / seconds);
  (void)local_files().remove_tree(path);
}

std::string spread(std::vector<double> values, const char* number) {
  std::sort(values.begin(), values.end());
  return fmt::format(fmt::runtime(fmt::format("{0} / {0} / {0}", number)), values.front(), values[values.size() / 2], values.back());
}

void run(std::vector<Contender> contenders, double row_bytes, const std::string& folder, int num_rounds) {
  for (int round = 0; round < num_rounds; ++round) {
    for (Contender& contender : contenders) {
      time_once(contender, folder);
    }
  }
  for (const Contender& contender : contenders) {
    std::vector<double> megabytes;
    std::vector<double> ratios;
    for (size_t round = 0; round < contender.rates.size(); ++round) {
      megabytes.push_back(contender.rates[round] * row_bytes * 1e-6);
      ratios.push_back(contender.rates[round] / contenders.front().rates[round]);
    }
    fmt::print("{:<24} {:>26} rows/CPU s {:>22} MB/CPU s  x {}\n", contender.name, spread(contender.rates, "{:.0f}"),
               spread(megabytes, "{:.0f}"), spread(ratios, "{:.2f}"));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: page_ceiling FOLDER [ROUNDS]\n");
    return 2;
  }
  const int num_rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 5;
  fmt::print("{} rows, {} rounds in turn, min / median / max\n", kRows, num_rounds);
  const auto any_answer = [](const std::string&) {};
  run({{"pictures", write_pictures, check_pictures}, {"their bytes alone", write_bare, any_answer}}, kBodyBytes, argv[1], num_rounds);
  run({{"tensors", write_tensors, check_tensors}}, kTensorElements * 2, argv[1], num_rounds);
  return 0;
}
