#include <arrow/api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "darkroom/encode/stored_latents.h"
#include "darkroom/image/png.h"
#include "darkroom/ingest/job_identity.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/presets.h"
#include "darkroom/show/inspect.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tables/tensor_column.h"
#include "support/forwarding_files.h"
#include "support/put_shard.h"
#include "support/temporary_folder.h"
#include "support/watched_decoder.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

struct Row {
  std::string key;
  std::string caption;
  std::string image = {};
  int32_t width = 40;
  float latent = 1;
};

class InspectTables : public ::testing::Test {
 protected:
  static std::string png(int width = 40, int height = 33) { return encode_png(Image::filled(width, height, 3, 99)); }
  static std::vector<Row> image_rows(int first, int count) {
    std::vector<Row> rows;
    for (int i = first; i < first + count; ++i) {
      rows.push_back({row_key(i), "caption " + std::to_string(i), png()});
    }
    return rows;
  }

  void write_part(const std::string& folder, const std::string& name, const arrow::RecordBatch& batch, const KeyValues& footer) {
    const auto written = put_shard(local_files(), folder_.path(folder), name, batch, footer);
    ASSERT_TRUE(written.is_ok()) << written.status().to_string();
  }
  static KeyValues footer_of(int64_t rows_out, const std::string& job, const std::string& errors = "{\"dns\":2}", int64_t num_failed = 2) {
    return {{kShardKey, fmt::format(R"({{"job":"{}","identity":{{"verb":"download","fields":{{"seed":7}}}},"rows_in":{},"rows_out":{},)"
                                    R"("rows_by_error":{},"invalid_captions":0}})",
                                    job, rows_out + num_failed, rows_out, errors)}};
  }
  void write_images(const std::string& name, const std::vector<Row>& rows, const std::string& job = "abc") {
    arrow::StringBuilder keys, captions;
    arrow::BinaryBuilder images;
    arrow::Int32Builder widths, heights;
    for (const Row& row : rows) {
      ASSERT_TRUE((keys.Append(row.key) & captions.Append(row.caption) & widths.Append(row.width) & heights.Append(33)).ok());
      ASSERT_TRUE((row.image.empty() ? images.AppendNull() : images.Append(row.image)).ok());
    }
    const auto schema =
        arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()), arrow::field("image", arrow::binary()),
                       arrow::field("width", arrow::int32()), arrow::field("height", arrow::int32())});
    const auto num_rows = static_cast<int64_t>(rows.size());
    write_part("images", name,
               *arrow::RecordBatch::Make(schema, num_rows,
                                         {*keys.Finish(), *captions.Finish(), *images.Finish(), *widths.Finish(), *heights.Finish()}),
               footer_of(num_rows, job));
  }
  void write_latents(const std::string& name, const std::vector<Row>& rows) {
    arrow::StringBuilder keys, captions;
    std::vector<uint16_t> latents;
    std::vector<float> states;
    for (const Row& row : rows) {
      ASSERT_TRUE((keys.Append(row.key) & captions.Append(row.caption)).ok());
      for (int i = 0; i < 4 * 4 * 4; ++i) {  // Channel c holds c + latent.
        latents.push_back(half_bits(row.latent + static_cast<float>(i / 16)));
      }
      states.insert(states.end(), 2 * 3, row.width < 0 ? std::numeric_limits<float>::infinity() : 0.5F);
    }
    const auto bytes_of = [](const auto& values) { return std::as_bytes(std::span(values)); };
    const auto schema = arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()),
                                       arrow::field("image_latents_32", tensor_type(TensorElement::kFloat16, {4, 4, 4})),
                                       arrow::field("caption_embeddings", tensor_type(TensorElement::kFloat32, {2, 3}))});
    const auto num_rows = static_cast<int64_t>(rows.size());
    KeyValues footer = footer_of(num_rows, "def", "{}", 0);
    footer.emplace_back("darkroom.latents", R"({"resolution":32,"vae_fingerprint":"fff"})");
    write_part("latents", name,
               *arrow::RecordBatch::Make(
                   schema, num_rows,
                   {*keys.Finish(), *captions.Finish(), make_tensor_column(TensorElement::kFloat16, {4, 4, 4}, bytes_of(latents)).value(),
                    make_tensor_column(TensorElement::kFloat32, {2, 3}, bytes_of(states)).value()}),
               footer);
  }
  void damage_byte(const std::string& path, size_t at) {
    std::string bytes = read_file(local_files(), path).value();
    bytes[at] = static_cast<char>(bytes[at] ^ 0x20);
    ASSERT_TRUE(write_file_atomic(local_files(), path, bytes).is_ok());
  }

  InspectReport look(const std::string& name, InspectOptions options = {}) {
    options.uri = folder_.path(name);
    auto report = inspect(local_files(), options, {});
    EXPECT_TRUE(report.is_ok()) << report.status().to_string();
    return report.is_ok() ? *report : InspectReport();
  }
  Status failure(const std::string& name, InspectOptions options = {}) {
    options.uri = folder_.path(name);
    return inspect(local_files(), options, {}).status();
  }

  TemporaryFolder folder_;
};

TEST_F(InspectTables, describes_an_image_dataset) {
  auto rows = image_rows(0, 3);
  rows[1].caption = "";
  rows[2].caption = std::string(200, 'x');
  rows[2].caption.replace(0, 9, "br\xff\x1b[31m<b>");
  write_images("part-000000.parquet", rows);
  write_images("part-000001.parquet", image_rows(3, 2));
  const InspectReport report = look("images");
  EXPECT_EQ(report.kind, "image dataset");
  const auto& summary = report.summary;
  EXPECT_EQ(summary["parts"], 2);
  EXPECT_EQ(summary["rows"], 5);
  EXPECT_EQ(summary["rows_in"], 9);
  EXPECT_EQ(summary["rows_by_error"], nlohmann::json::parse(R"({"dns":4})"));
  EXPECT_EQ(summary["fingerprint"], "abc");
  EXPECT_EQ(summary["job"]["fields"]["seed"], 7);
  EXPECT_EQ(summary["schema"][2], nlohmann::json::parse(R"({"column":"image","type":"binary"})"));
  EXPECT_EQ(summary["statistics"]["images"]["formats"], nlohmann::json::parse(R"({"image/png":5})"));
  EXPECT_EQ(summary["statistics"]["images"]["width"], nlohmann::json::parse(R"({"min":40,"median":40,"max":40})"));
  EXPECT_EQ(summary["statistics"]["captions"]["empty"], 1);
  EXPECT_EQ(summary["statistics"]["captions"]["invalid_utf8"], 1);
  EXPECT_EQ(summary["statistics"]["keys"]["duplicates"], 0);
  EXPECT_EQ(summary["rows_studied"], 5);
  const std::string text = report.to_text();
  EXPECT_THAT(text, AllOf(HasSubstr("rows by error  dns 4"), HasSubstr("image/png 40x33"), HasSubstr("000000000004"), HasSubstr("5 (all)"),
                          HasSubstr("xxx..."), Not(HasSubstr("\x1b")), Not(HasSubstr("\xff"))));
}

TEST_F(InspectTables, shows_as_many_rows_as_asked_over_several_parts) {
  write_images("part-000000.parquet", image_rows(0, 3));
  write_images("part-000001.parquet", image_rows(3, 30));
  EXPECT_THAT(look("images", {.num_rows = 7}).tables.back().rows, SizeIs(7));
  EXPECT_EQ(look("images", {.num_rows = 7}).tables.back().rows[6][0], row_key(6));
  EXPECT_THAT(look("images", {.num_rows = 1000}).tables.back().rows, SizeIs(33));
  EXPECT_NE(look("images", {.num_rows = 0}).tables.back().title, "first rows");
}

TEST_F(InspectTables, describes_a_latents_dataset_by_channel) {
  write_latents("part-000000.parquet", {{row_key(0), "a"}, {row_key(1), "b", "", 40, 3}});
  const InspectReport report = look("latents");
  EXPECT_EQ(report.kind, "latents dataset");
  EXPECT_EQ(report.summary["latents"]["vae_fingerprint"], "fff");
  const auto& tensors = report.summary["statistics"]["tensors"]["image_latents_32"];
  EXPECT_EQ(tensors["shape"], nlohmann::json::parse("[4,4,4]"));
  EXPECT_EQ(tensors["element"], "float16");
  ASSERT_THAT(tensors["channels"], SizeIs(4));
  EXPECT_EQ(tensors["channels"][2]["mean"], 4.0);
  EXPECT_EQ(tensors["channels"][2]["std"], 1.0);
  EXPECT_EQ(tensors["channels"][2]["min"], 3.0);
  EXPECT_EQ(tensors["channels"][2]["max"], 5.0);
  EXPECT_THAT(report.to_text(), HasSubstr("tensor [4, 4, 4]"));
}

TEST_F(InspectTables, describes_a_url_table) {
  const std::string csv = "url,TEXT,aesthetic\nhttp://a/1.jpg,\"one, two\",5\nhttp://a/2.jpg,,\n";
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("rows.csv"), csv).is_ok());
  const InspectReport report = look("rows.csv", {.verify = true});
  EXPECT_EQ(report.kind, "URL table");
  EXPECT_EQ(report.summary["rows"], 2);
  EXPECT_EQ(report.summary["statistics"]["captions"]["empty"], 1);
  EXPECT_EQ(report.num_damages, 0);
  EXPECT_EQ(report.tables.back().rows[0], (std::vector<std::string>{"http://a/1.jpg", "one, two", "5"}));
  EXPECT_EQ(failure("rows.csv", {.sheet_path = folder_.path("sheet.png")}).code(), StatusCode::kFailedPrecondition);
}

TEST_F(InspectTables, a_table_of_unknown_columns_is_still_a_table) {
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("rows.jsonl"), "{\"a\":1}\n{\"a\":2}\n").is_ok());
  const InspectReport report = look("*.jsonl");
  EXPECT_EQ(report.kind, "table");
  EXPECT_EQ(report.tables.back().rows[1], (std::vector<std::string>{"2"}));
}

TEST_F(InspectTables, the_names_of_columns_reach_no_terminal_as_they_are) {
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("rows.csv"), "url,a\x1b[31m\nhttp://a/1.jpg,1\n").is_ok());
  EXPECT_THAT(look("rows.csv").tables.back().head, testing::Each(Not(HasSubstr("\x1b"))));
}

TEST_F(InspectTables, a_sound_dataset_verifies) {
  write_images("part-000000.parquet", image_rows(0, 50));
  write_images("part-000001.parquet", image_rows(50, 1));
  const InspectReport report = look("images", {.verify = true});
  EXPECT_THAT(report.damage, ElementsAre());
  EXPECT_EQ(report.summary["rows_studied"], 51);
  EXPECT_EQ(report.summary["verified"], true);
}

TEST_F(InspectTables, verify_names_file_and_row_of_what_is_damaged) {
  auto rows = image_rows(0, 5);
  rows[1].image = "<html>no image</html>";
  rows[2].image = png().substr(0, 14);
  rows[3].width = 41;
  rows[4].image = "";
  write_images("part-000000.parquet", rows);
  const InspectReport report = look("images", {.verify = true});
  const std::string path = folder_.path("images/part-000000.parquet");
  EXPECT_THAT(report.damage, ElementsAre(AllOf(HasSubstr(path + " row 1: "), HasSubstr("not_an_image")),
                                         AllOf(HasSubstr(path + " row 2: "), HasSubstr("truncated")),
                                         AllOf(HasSubstr(path + " row 3: "), HasSubstr("41 x 33, 40 x 33")),
                                         AllOf(HasSubstr(path + " row 4: "), HasSubstr("null"))));
}

TEST_F(InspectTables, verify_finds_a_changed_byte_and_looks_at_the_other_parts) {
  for (int part = 0; part < 3; ++part) {
    write_images(PartName{.item = part}.text(), image_rows(part * 50, 50));
  }
  const std::string first = folder_.path("images/part-000000.parquet"), last = folder_.path("images/part-000002.parquet");
  damage_byte(first, 2000);
  damage_byte(last, read_file(local_files(), last)->size() - 40);
  EXPECT_EQ(failure("images").code(), StatusCode::kCorruptData) << "a damaged footer stops even a look";
  const InspectReport report = look("images", {.verify = true});
  ASSERT_GE(report.num_damages, 2);
  EXPECT_THAT(report.damage, testing::Contains(HasSubstr(first)));
  EXPECT_THAT(report.damage, testing::Contains(HasSubstr(last)));
  EXPECT_THAT(report.damage, Not(testing::Contains(HasSubstr("part-000001"))));
}

TEST_F(InspectTables, verify_finds_keys_that_occur_twice_in_any_part) {
  auto rows = image_rows(0, 4);
  rows[3].key = rows[1].key;
  write_images("part-000000.parquet", rows);
  auto others = image_rows(10, 2);
  others[1].key = rows[0].key;
  write_images("part-000001.parquet", others);
  EXPECT_EQ(look("images").summary["statistics"]["keys"]["duplicates"], 2);
  const InspectReport report = look("images", {.verify = true});
  EXPECT_THAT(report.damage, ElementsAre(AllOf(HasSubstr("part-000000.parquet row 3"), HasSubstr("part-000000.parquet row 1")),
                                         AllOf(HasSubstr("part-000001.parquet row 1"), HasSubstr("part-000000.parquet row 0"))));
}

TEST_F(InspectTables, verify_finds_nan_in_latents_and_states) {
  write_latents("part-000000.parquet",
                {{row_key(0), "a"}, {row_key(1), "b", "", 40, std::numeric_limits<float>::quiet_NaN()}, {row_key(2), "c", "", -1}});
  const InspectReport report = look("latents", {.verify = true});
  EXPECT_THAT(report.damage, ElementsAre(HasSubstr("part-000000.parquet row 1: image_latents_32 holds NaN or infinities: 64 of 64"),
                                         HasSubstr("part-000000.parquet row 2: caption_embeddings holds NaN or infinities: 6 of 6")));
  EXPECT_EQ(report.summary["statistics"]["tensors"]["image_latents_32"]["channels"][0]["not_finite"], 16);
}

TEST_F(InspectTables, verify_keeps_twenty_lines_and_counts_all) {
  auto rows = image_rows(0, 30);
  for (Row& row : rows) {
    row.image = "nothing";
  }
  write_images("part-000000.parquet", rows);
  const InspectReport report = look("images", {.verify = true});
  EXPECT_THAT(report.damage, SizeIs(20));
  EXPECT_EQ(report.num_damages, 30);
  EXPECT_EQ(report.summary["num_damages"], 30);
}

TEST_F(InspectTables, verify_finds_parts_of_two_jobs_and_records_that_do_not_fit) {
  write_images("part-000000.parquet", image_rows(0, 2), "abc");
  write_images("part-000001.parquet", image_rows(2, 2), "xyz");
  EXPECT_THAT(look("images", {.verify = true}).damage, ElementsAre(HasSubstr("another job")));
  const auto schema = arrow::schema({arrow::field("key", arrow::utf8())});
  arrow::StringBuilder keys;
  ASSERT_TRUE(keys.Append("k").ok());
  write_part("short", "part-000000.parquet", *arrow::RecordBatch::Make(schema, 1, {*keys.Finish()}), footer_of(5, "abc"));
  EXPECT_THAT(look("short", {.verify = true}).damage, ElementsAre(HasSubstr("does not fit the file")));
}

TEST_F(InspectTables, verify_finds_a_part_without_a_column_of_the_first) {
  write_images("part-000000.parquet", image_rows(0, 2));
  arrow::StringBuilder keys;
  ASSERT_TRUE(keys.Append("k").ok());
  const auto schema = arrow::schema({arrow::field("key", arrow::utf8())});
  write_part("images", "part-000001.parquet", *arrow::RecordBatch::Make(schema, 1, {*keys.Finish()}), footer_of(1, "abc"));
  EXPECT_THAT(look("images", {.verify = true}).damage, ElementsAre(AllOf(HasSubstr("part-000001.parquet"), HasSubstr("lacks a column"))));
  EXPECT_EQ(failure("images").code(), StatusCode::kNotFound);
}

TEST_F(InspectTables, draws_a_sheet_and_a_page_of_pictures) {
  auto rows = image_rows(0, 8);
  rows[2].image = "broken";
  rows[3].caption = "<script>alert(1)</script>";
  write_images("part-000000.parquet", rows);
  const InspectReport report =
      look("images", {.num_rows = 8, .sheet_path = folder_.path("out/sheet.png"), .html_path = folder_.path("out/page.html")});
  EXPECT_GT(report.sheet.width, 6 * 256 - 1);
  EXPECT_THAT(read_file(local_files(), folder_.path("out/sheet.png")).value(), testing::StartsWith("\x89PNG"));
  const std::string page = read_file(local_files(), folder_.path("out/page.html")).value();
  EXPECT_THAT(page, HasSubstr("data:image/png;base64,"));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert"));
  EXPECT_EQ(page.find("<script"), page.rfind("<script")) << "the page's own alone";
  EXPECT_THAT(page, HasSubstr("[not_an_image]"));
  EXPECT_THAT(page, HasSubstr("<td>rows</td><td>8</td>"));
  for (const char* reference : {"http:", "https:", "@import", "url(", "<link"}) {
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  }
}

TEST_F(InspectTables, the_decoder_that_it_is_given_decodes_all_pictures_of_a_sheet_and_a_page) {
  auto rows = image_rows(0, 8);
  rows[2].image = "broken";
  write_images("part-000000.parquet", rows);
  int num_opened = 0, num_pictures = 0;
  Status lost;
  const auto before = [&] {
    ++num_pictures;
    return lost;
  };
  const auto open = [&](const std::stop_token&) -> Result<std::unique_ptr<PictureDecoder>> {
    ++num_opened;
    return std::unique_ptr<PictureDecoder>(std::make_unique<WatchedDecoder>(before));
  };
  look("images", {.num_rows = 8, .sheet_path = folder_.path("sheet.png"), .open_decoder = open});
  EXPECT_EQ(num_opened, 1);
  EXPECT_EQ(num_pictures, 7);  // All that look like pictures.
  look("images", {.num_rows = 8, .html_path = folder_.path("page.html"), .open_decoder = open});
  EXPECT_EQ(num_opened, 2);
  EXPECT_EQ(num_pictures, 14);
  look("images", {.num_rows = 8, .open_decoder = open});  // No picture is shown.
  EXPECT_EQ(num_opened, 2);
  lost = Status::unavailable("the decoder is lost");
  EXPECT_EQ(failure("images", {.sheet_path = folder_.path("sheet.png"), .open_decoder = open}).message(), "the decoder is lost");
}

TEST_F(InspectTables, a_picture_over_the_limits_of_the_sheet_costs_its_own_place_only) {
  auto rows = image_rows(0, 3);
  rows[1].image = png(40, 40);
  write_images("part-000000.parquet", rows);
  const auto sheet = [&](InspectOptions options) {
    options.sheet_path = folder_.path("sheet.png");
    return look("images", options).sheet;
  };
  const Image whole = sheet({});
  EXPECT_NE(sheet({.max_pixels = 40 * 33}), whole) << "the larger picture is refused";
  EXPECT_EQ(sheet({.max_pixels = 40 * 40}), whole);
  const auto most_bytes = static_cast<int64_t>(std::max(rows[0].image.size(), rows[1].image.size()));
  EXPECT_NE(sheet({.max_bytes = most_bytes - 1}), whole);
  EXPECT_EQ(sheet({.max_bytes = most_bytes}), whole);
  for (const InspectOptions& options : {InspectOptions{.max_pixels = 0}, InspectOptions{.max_bytes = 0}}) {
    EXPECT_EQ(failure("images", options).code(), StatusCode::kInvalidArgument);
  }
}

/// A number of kB from /proc/self/status.
int64_t process_kilobytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) {
      return std::stoll(line.substr(field.size() + 1));
    }
  }
  return -1;
}

TEST_F(InspectTables, a_sheet_takes_the_memory_of_the_pixels_whatever_their_shape) {
  constexpr int kHeight = 8'000'000;
  auto rows = image_rows(0, 1);
  rows[0].image = png(1, kHeight);
  write_images("part-000000.parquet", rows);
  std::ofstream reset("/proc/self/clear_refs");
  if (!(reset << "5" << std::flush)) {
    GTEST_SKIP() << "the peak of memory cannot be reset: /proc/self/clear_refs is not writable";
  }
  const int64_t before = process_kilobytes("VmRSS:");
  EXPECT_FALSE(look("images", {.sheet_path = folder_.path("sheet.png")}).sheet.pixels.empty());
  // The picture itself, and as much again for all else.
  EXPECT_LT(process_kilobytes("VmHWM:") - before, 2 * 3 * kHeight / 1024);
}

TEST_F(InspectTables, a_thin_picture_shows_the_mean_of_its_pixels) {
  Image stripes = Image::filled(1, 100'000, 3);
  for (int y = 0; y < stripes.height; y += 2) {
    std::fill_n(stripes.row(y), 3, uint8_t{200});
  }
  auto rows = image_rows(0, 1);
  rows[0].image = encode_png(stripes);
  rows[0].caption = "";
  write_images("part-000000.parquet", rows);
  const Image sheet = look("images", {.sheet_path = folder_.path("sheet.png")}).sheet;
  EXPECT_THAT(sheet.pixels, testing::Contains(100)) << "the mean of 200 and 0, enlarged";
  EXPECT_THAT(sheet.pixels, Not(testing::Contains(200)));
}

TEST_F(InspectTables, wide_tables_are_fitted_to_a_terminal) {
  auto rows = image_rows(0, 2);
  rows[0].caption = std::string(100, 'x');
  rows[1].caption = "\u65e5\u672c\u8a9e\u306e\u9577\u3044\u8aac\u660e\u6587\u3092\u66f8\u304f\u3068\u5e45\u306f\u4e8c\u500d\u3067\u3059";
  write_images("part-000000.parquet", rows);
  const InspectReport report = look("images");
  const auto widest = [](const std::string& text) {
    size_t columns = 0;
    std::istringstream lines(text.substr(text.find('\n') + 1));  // After the line with the URI.
    for (std::string line; std::getline(lines, line);) {
      size_t width = 0;
      for (const char c : line) {
        const auto byte = static_cast<unsigned char>(c);
        width += byte < 0x80 || byte >= 0xF0 ? 1
                 : byte >= 0xE0              ? 2
                 : byte >= 0xC0              ? 1
                                             : 0;  // The test's own wide characters have three bytes.
      }
      columns = std::max(columns, width);
    }
    return columns;
  };
  EXPECT_GT(widest(report.to_text()), 100U) << "whole where no width is given: into a file or a pipe";
  EXPECT_THAT(report.to_text(), HasSubstr(std::string(45, 'x') + "..."));
  for (const int64_t width : {200, 100, 80, 60, 40}) {
    EXPECT_LE(widest(report.to_text(width)), static_cast<size_t>(width)) << report.to_text(width);
  }
  EXPECT_THAT(report.to_text(40), HasSubstr("  row 2\n  key")) << "one column a line where cells would say nothing";
  EXPECT_THAT(report.to_text(200), testing::Eq(report.to_text()));
  EXPECT_THAT(report.to_text(80), HasSubstr("000000000001")) << "keys are whole";
}

TEST_F(InspectTables, bytes_that_are_no_utf8_take_a_column_each) {
  const std::string stray(60, '\x80');  // No character goes before them that they could continue.
  InspectReport report;
  report.tables.push_back({.title = "", .head = {"name", "end"}, .rows = {{stray.substr(0, 3), "x"}, {"abc", "y"}}});
  EXPECT_THAT(report.to_text(), AllOf(HasSubstr("  \x80\x80\x80   x\n"), HasSubstr("  abc   y\n")));
  report.tables[0].rows[0][0] = stray;
  EXPECT_THAT(report.to_text(30), HasSubstr("  " + stray.substr(0, 20) + "...  x\n")) << "clipped like any other wide cell";
}

TEST_F(InspectTables, decodes_moments_at_their_mean_as_process_shows_them) {
  AutoencoderKL vae(find_preset("tiny")->vae);
  initialize_parameters(vae, 3);
  const torch::Tensor mean_chw = torch::randn({4, 4, 4});
  const auto of_moments = decode_stored_latents(vae, torch::cat({mean_chw, torch::full({4, 4, 4}, 9.0)}));
  const auto of_latents = decode_stored_latents(vae, mean_chw * vae->config().scaling_factor);
  ASSERT_TRUE(of_moments.is_ok() && of_latents.is_ok());
  ASSERT_EQ(of_moments->pixels.size(), of_latents->pixels.size());
  for (size_t i = 0; i < of_moments->pixels.size(); ++i) {
    ASSERT_NEAR(of_moments->pixels[i], of_latents->pixels[i], 1) << "scaled and divided again: the last bit of a level";
  }
  EXPECT_EQ(decode_stored_latents(vae, torch::zeros({3, 4, 4})).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(decode_stored_latents(vae, torch::zeros({4, 4})).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(InspectTables, draws_latents_as_heat_maps_and_decodes_them_with_a_model) {
  write_latents("part-000000.parquet", {{row_key(0), "a"}, {row_key(1), "b"}});
  const Image maps = look("latents", {.sheet_path = folder_.path("sheet.png")}).sheet;
  AutoencoderKL vae(find_preset("tiny")->vae);
  initialize_parameters(vae, 1);
  ASSERT_TRUE(save_vae(local_files(), vae, folder_.path("model/vae")).is_ok());
  const Image decoded = look("latents", {.sheet_path = folder_.path("sheet.png"), .model = folder_.path("model")}).sheet;
  EXPECT_GT(maps.width, 4 * 200);
  EXPECT_GT(decoded.width, maps.width);
  EXPECT_EQ(failure("latents", {.sheet_path = folder_.path("sheet.png"), .model = folder_.path("absent")}).code(), StatusCode::kNotFound);
}

TEST_F(InspectTables, a_page_of_latents_shows_captions_keys_channels_and_decoded_pictures) {
  write_latents("part-000000.parquet", {{row_key(0), "a red square"}, {row_key(1), "b"}});
  AutoencoderKL vae(find_preset("tiny")->vae);
  initialize_parameters(vae, 1);
  ASSERT_TRUE(save_vae(local_files(), vae, folder_.path("model/vae")).is_ok());
  const InspectReport report = look("latents", {.html_path = folder_.path("page.html"), .model = folder_.path("model")});
  ASSERT_EQ(report.cards.size(), 2u);
  EXPECT_EQ(report.cards[0].caption, "a red square");
  EXPECT_EQ(report.cards[0].pictures.size(), 4u + 1);
  EXPECT_EQ(report.cards[0].pictures.back().label, "decoded");
  const std::string page = read_file(local_files(), folder_.path("page.html")).value();
  EXPECT_THAT(page, AllOf(HasSubstr("<p>a red square</p>"), HasSubstr(row_key(1)), HasSubstr("channel 0"), HasSubstr("decoded")));
  EXPECT_THAT(report.sheet.pixels, testing::IsEmpty()) << "nobody asked for one";
}

TEST_F(InspectTables, an_empty_dataset_is_described_but_has_no_sheet) {
  write_images("part-000000.parquet", {});
  EXPECT_THAT(look("images", {.html_path = folder_.path("page.html")}).cards, testing::IsEmpty());
  EXPECT_EQ(look("images", {.verify = true}).summary["rows"], 0);
  EXPECT_EQ(failure("images", {.sheet_path = folder_.path("sheet.png")}).code(), StatusCode::kFailedPrecondition);
}

TEST_F(InspectTables, studies_the_first_rows_only_unless_it_verifies) {
  std::string csv = "url,caption\n";
  for (int64_t i = 0; i < kRowsStudied + 5; ++i) {
    csv += fmt::format("u,{}\n", i);
  }
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("rows.csv"), csv).is_ok());
  const InspectReport report = look("rows.csv");
  EXPECT_EQ(report.summary["rows_studied"], kRowsStudied);
  EXPECT_THAT(report.to_text(), HasSubstr("10,000 (the first; --verify: all)"));
  EXPECT_EQ(look("rows.csv", {.verify = true}).summary["rows_studied"], kRowsStudied + 5);
}

TEST_F(InspectTables, stops_on_request) {
  write_images("part-000000.parquet", image_rows(0, 2));
  std::stop_source stop;
  stop.request_stop();
  const auto report = inspect(local_files(), {.uri = folder_.path("images"), .verify = true}, stop.get_token());
  EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
}

/// The machine's files; asks for a stop when a file of that name is opened.
class StoppingFiles final : public ForwardingFiles {
 public:
  explicit StoppingFiles(std::string name) : ForwardingFiles(local_files()), name_(std::move(name)) {}

  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    if (path.ends_with(name_)) {
      stop_.request_stop();
    }
    return ForwardingFiles::open_input(path);
  }
  std::stop_token token() const { return stop_.get_token(); }

 private:
  std::string name_;
  std::stop_source stop_;
};

TEST_F(InspectTables, a_verification_that_is_stopped_keeps_what_it_found) {
  write_images("part-000000.parquet", image_rows(0, 2));
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("images/part-000001.parquet"), "no table").is_ok());
  StoppingFiles files("part-000001.parquet");
  InspectReport report;
  const Status status = inspect(files, {.uri = folder_.path("images"), .verify = true}, files.token(), report);
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_THAT(report.damage, ElementsAre(HasSubstr("part-000001.parquet")));
  EXPECT_EQ(report.summary["num_damages"], 1);
  EXPECT_EQ(report.summary["kind"], "image dataset");
  EXPECT_EQ(report.summary["rows_studied"], 0);
}

TEST_F(InspectTables, refuses_wrong_flags_and_names_that_are_not_there) {
  EXPECT_EQ(inspect(local_files(), {}, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(failure("x", {.num_rows = -1}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(failure("x", {.num_rows = 1001}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(failure("x", {.num_rows = 0, .sheet_path = "s.png"}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(failure("x", {.model = "m"}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(inspect(local_files(), {.uri = "s3://bucket/x"}, {}).status().code(), StatusCode::kInvalidArgument);
  const Status absent = failure("absent");
  EXPECT_EQ(absent.code(), StatusCode::kNotFound);
  EXPECT_THAT(absent.message(), AllOf(HasSubstr("inspect knows"), HasSubstr(folder_.path("absent"))));
}

}  // namespace
}  // namespace darkroom
