#include "darkroom/plan/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "darkroom/plan/fleet.h"
#include "shipped_catalogue.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;

TEST(Catalogue, as_shipped_has_what_the_published_run_needs) {
  const Catalogue& catalogue = shipped_catalogue();
  const Machine* trainer = catalogue.machine("p4de.24xlarge");
  ASSERT_NE(trainer, nullptr);
  EXPECT_EQ(trainer->num_accelerators, 8);
  ASSERT_NE(catalogue.price("p4de.24xlarge", "reserved"), nullptr);
  EXPECT_EQ(catalogue.price("p4de.24xlarge", "reserved")->dollars_per_hour, 24.01);
  EXPECT_EQ(catalogue.price("p4de.24xlarge", "reserved")->origin.date, "2024-05-01");
  ASSERT_NE(catalogue.rate("train", *trainer, 512), nullptr);
  EXPECT_EQ(catalogue.rate("train", *trainer, 1024), nullptr);
  EXPECT_EQ(catalogue.rate("encode", *trainer, 256), nullptr);
  ASSERT_NE(catalogue.rate("download", *catalogue.machine("m5.8xlarge"), 0), nullptr);
  EXPECT_EQ(catalogue.machine("p4de"), nullptr);
  EXPECT_EQ(catalogue.price("mosaicml-8xa100", "spot"), nullptr);
}

TEST(Catalogue, names_file_line_key_and_value_of_what_it_refuses) {
  const struct {
    const char* from;
    const char* to;
    std::vector<std::string> words;
  } cases[] = {
      {"format = 1", "format = 2", {"my.toml, line 4", "format", "must be 1", "got: 2"}},
      {"format = 1", "", {"my.toml", "format is missing"}},
      {"format = 1", "format = 1\nprizes = 3", {"my.toml, line 5", "'prizes'", "did you mean 'price'"}},
      {"accelerators = 8", "accelerators = 0", {"[[machine]] 1 accelerators", "at least 1", "got: 0"}},
      {"accelerators = 8", "accelerators = -8", {"[[machine]] 1 accelerators", "whole number", "got: -8"}},
      {"accelerators = 8", "accelerators = \"8\"", {"[[machine]] 1 accelerators", "whole number"}},
      {"name = \"p4de.24xlarge\"", "name = \"\"", {"[[machine]] 1 name", "not empty"}},
      {"name = \"p4de.24xlarge\"", "name = \"p4de,x\"", {"[[machine]] 1 name", "p4de,x"}},
      {"name = \"p4de.24xlarge\"", "nam = \"p4de.24xlarge\"", {"[[machine]] 1 name is missing"}},
      {"watts = 6500", "watts = 0", {"[[machine]] 1 watts", "above 0", "got: 0"}},
      {"watts = 6500", "watts = inf", {"[[machine]] 1 watts", "got: inf"}},
      {"watts = 6500", "watts = nan", {"[[machine]] 1 watts", "got: nan"}},
      {"watts = 6500", "watts = 6500\nwats = 1", {"[[machine]] 1", "'wats'", "'watts'"}},
      {"date = \"2021-01-01\"", "date = \"January\"", {"[[machine]] 1 date", "January", "2026-11-23"}},
      {"date = \"2021-01-01\"", "", {"[[machine]] 1 date is missing"}},
      {"name = \"p4d.24xlarge\"", "name = \"p4de.24xlarge\"", {"[[machine]] 2", "comes twice", "p4de.24xlarge"}},
      {"machine = \"p4d.24xlarge\"", "machine = \"p4d.24xlrge\"", {"my.toml", "p4d.24xlrge", "did you mean 'p4d.24xlarge'"}},
      {"purchase = \"reserved\"", "purchase = \"lent\"", {"[[price]] 2 purchase", "on_demand, reserved, spot", "'lent'"}},
      {"dollars_per_hour = 40.96", "dollars_per_hour = -1", {"[[price]] 1 dollars_per_hour", "above 0", "got: -1"}},
      {"dollars_per_hour = 40.96", "dollars_per_hour = \"much\"", {"[[price]] 1 dollars_per_hour", "much"}},
      {"task = \"train\"", "task = \"drain\"", {"[[rate]] 1 task", "train, encode, download", "'drain'"}},
      {"resolution = 256", "resolution = 300", {"[[rate]] 1 resolution", "256 or 512", "got: 300"}},
      {"per_second = 138.7233", "per_second = 0", {"[[rate]] 1 per_second", "above 0"}},
      {"hours_between = 6334", "hours_between = 0", {"[[loss]] 1 hours_between", "above 0"}},
      {"dollars_per_gib_month = 0.023", "dollars_per_gib_month = -0.1", {"[[store]] 1 dollars_per_gib_month", "from 0", "-0.1"}},
      {"name = \"picture_bytes\"", "name = \"picture_byte\"", {"[[fact]] 4 name", "picture_byte", "'picture_bytes'"}},
      {"value = 0.6", "value = 1.6", {"[[fact]] 3 value", "at most 1", "1.6"}},
      {"[[published]]", "[published]", {"my.toml"}},
      {"high = 5500", "high = 5", {"[[range]] 1 high", "below low (500)", "got: 5"}},
      {"high = 150_000", "high = 120_000", {"[[fact]] 4 value", "between low (110000) and high (120000)"}},
      {"least_dollars_per_gib_month = 0.021", "least_dollars_per_gib_month = 0.1", {"[[store]] 1 least_dollars_per_gib_month", "at most"}},
      {"watts = 6500", "watts = = 1", {"my.toml, line ", "this is no TOML"}},
      {"watts = 6500", "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r = 1", {"my.toml: line ", "a key has more than 16 parts"}},
  };
  for (const auto& one : cases) {
    const auto catalogue = parse_catalogue(with_replaced(shipped_catalogue_text(), one.from, one.to), "my.toml");
    ASSERT_FALSE(catalogue.is_ok()) << one.to;
    EXPECT_EQ(catalogue.status().code(), StatusCode::kInvalidArgument) << one.to;
    for (const std::string& word : one.words) {
      EXPECT_THAT(catalogue.status().message(), HasSubstr(word)) << one.to;
    }
  }
}

TEST(Catalogue, without_a_fact_that_plans_need_is_refused) {
  const std::string text =
      with_replaced(shipped_catalogue_text(), "[[fact]]\nname = \"pue\"\nvalue = 1.15", "[[fact]]\nname = \"kept_checkpoints\"\nvalue = 1");
  EXPECT_THAT(parse_catalogue(text, "my.toml").status().message(), HasSubstr("comes twice"));
  const std::string empty = "format = 1\n";
  EXPECT_THAT(parse_catalogue(empty, "my.toml").status().message(), HasSubstr("distinct_pictures_256"));
}

TEST(Catalogue, of_ones_own_goes_line_by_line_over_the_shipped_one) {
  Catalogue catalogue = shipped_catalogue();
  const size_t num_prices = catalogue.prices.size();
  const std::string line =
      "format = 1\n[[price]]\nmachine = \"p4de.24xlarge\"\npurchase = \"spot\"\ndollars_per_hour = 9\ndate = \"2026-11-23\"\nsource = \"a "
      "test\"\n";
  ASSERT_TRUE(catalogue.add(line, "mine.toml").is_ok());
  EXPECT_EQ(catalogue.prices.size(), num_prices);
  EXPECT_EQ(catalogue.price("p4de.24xlarge", "spot")->dollars_per_hour, 9);
  EXPECT_EQ(catalogue.price("p4de.24xlarge", "spot")->origin.to_text(), "mine.toml: a test (2026-11-23)");
  EXPECT_EQ(catalogue.name, "prices/catalogue.toml with mine.toml");

  EXPECT_FALSE(catalogue.add(line + "[[store]]\n", "worse.toml").is_ok());
  EXPECT_EQ(catalogue.name, "prices/catalogue.toml with mine.toml");  // Nothing has changed.
}

TEST(Catalogue, gives_estimates_their_ranges_from_ranges_facts_and_stores) {
  const Catalogue& catalogue = shipped_catalogue();
  const std::pair<const char*, Range> cases[] = {
      {"picture_bytes", {110'000, 150'000}},           {"good_rows_percent", {60, 85}},
      {"fetch_rows_per_core_second", {500, 5500}},     {"line_bytes_per_second", {12.5e6, 1.25e9}},
      {"transform_rows_per_core_second", {461, 528}},  {"storage_dollars_per_gib_month", {0.021, 0.023}},
      {"dollars_per_thousand_writes", {0.005, 0.005}}, {"dollars_per_thousand_reads", {0.0004, 0.0004}}};
  for (const auto& [name, range] : cases) {
    const auto found = catalogue.find(name);
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    EXPECT_EQ(found->value, range) << name;
    EXPECT_EQ(found->name, name);
    EXPECT_FALSE(found->unit.empty() || found->origin.source.empty()) << name;
    EXPECT_EQ(Catalogue().find(name).status().code(), StatusCode::kFailedPrecondition) << name;
  }
  EXPECT_THAT(catalogue.find("weight").status().message(), HasSubstr("weight"));
}

TEST(Catalogue, of_rates_the_own_one_then_that_of_the_machine_then_that_of_the_resolution_counts) {
  const auto line = [](const char* task, const char* of, int resolution, double per_second) {
    return "[[rate]]\ntask = \"" + std::string(task) + "\"\naccelerator = \"" + of + "\"\n" +
           (resolution == 0 ? "" : "resolution = " + std::to_string(resolution) + "\n") + "per_second = " + std::to_string(per_second) +
           "\ndate = \"2026-11-23\"\nsource = \"a test\"\n";
  };
  Catalogue catalogue = shipped_catalogue();
  const Machine trainer = *catalogue.machine("p4de.24xlarge");
  const Rate shipped = *catalogue.rate("train", trainer, 512);
  ASSERT_EQ(shipped.accelerator, trainer.accelerator);
  ASSERT_TRUE(catalogue.add("format = 1\n" + line("train", "p4de.24xlarge", 512, 7), "mine.toml").is_ok());
  EXPECT_EQ(catalogue.rate("train", trainer, 512)->per_second, 7);
  EXPECT_EQ(catalogue.rate("train", trainer, 256)->origin.file, shipped.origin.file);
  ASSERT_TRUE(catalogue.add("format = 1\n" + line("train", trainer.accelerator.c_str(), 512, 8), "later.toml").is_ok());
  EXPECT_EQ(catalogue.rate("train", trainer, 512)->per_second, 8);  // A file's lines go over those of the files before it.
  const std::string both = line("train", trainer.accelerator.c_str(), 512, 8) + line("train", "p4de.24xlarge", 512, 9);
  ASSERT_TRUE(catalogue.add("format = 1\n" + both, "last.toml").is_ok());
  EXPECT_EQ(catalogue.rate("train", trainer, 512)->per_second, 9);
  const Machine loader = *catalogue.machine("m5.8xlarge");
  const std::string downloads = line("download", "m5.8xlarge", 0, 3) + line("download", "m5.8xlarge", 512, 4);
  ASSERT_TRUE(catalogue.add("format = 1\n" + downloads, "downloads.toml").is_ok());
  EXPECT_EQ(catalogue.rate("download", loader, 512)->per_second, 4);
  EXPECT_EQ(catalogue.rate("download", loader, 0)->per_second, 3);
  EXPECT_EQ(catalogue.rate("download", loader, 256)->per_second, 3);
}

TEST(Catalogue, that_cannot_be_read_is_named) {
  const Status status = load_catalogue(local_files(), source_path(kCatalogueResource), "/nowhere/prices.toml").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("/nowhere/prices.toml"));
}

TEST(Fleet, reads_what_it_prints) {
  for (const char* spec :
       {kPublishedFleet, "train=1xp5.48xlarge", "train=2xp4d.24xlarge,encode=g5.2xlarge", "train=4xp4de.24xlarge,download=3xm5.8xlarge"}) {
    const auto fleet = parse_fleet(spec, shipped_catalogue());
    ASSERT_TRUE(fleet.is_ok()) << fleet.status().to_string();
    EXPECT_EQ(fleet->to_text(), spec);
  }
  EXPECT_EQ(parse_fleet("4xp4de.24xlarge", shipped_catalogue())->to_text(), "train=4xp4de.24xlarge");
}

TEST(Fleet, names_the_group_that_it_refuses) {
  const struct {
    const char* spec;
    std::vector<std::string> words;
  } cases[] = {
      {"", {"''", "machine"}},
      {"p4de.24xlarge", {"'p4de.24xlarge'", "how many", "train=4xp4de.24xlarge"}},
      {"0xp4de.24xlarge", {"'0xp4de.24xlarge'", "1 to 1000000", "got: 0"}},
      {"99999999999999999999xp4de.24xlarge", {"1 to 1000000"}},
      {"train=4xp4de.24xlrge", {"p4de.24xlrge", "did you mean 'p4de.24xlarge'"}},
      {"train=4xp4de.24xlarge,48xg5.2xlarge", {"'48xg5.2xlarge'", "role"}},
      {"train=4xp4de.24xlarge,encod=48xg5.2xlarge", {"encod=", "train=, encode= or download="}},
      {"train=4xp4de.24xlarge,train=1xp4d.24xlarge", {"train=1xp4d.24xlarge", "another group"}},
      {"encode=48xg5.2xlarge", {"no trainers", "encode=48xg5.2xlarge"}},
      {"train=4xp4de.24xlarge,", {"''", "role"}},
      {"train=-4xp4de.24xlarge", {"-4xp4de.24xlarge"}},
  };
  for (const auto& one : cases) {
    const auto fleet = parse_fleet(one.spec, shipped_catalogue());
    ASSERT_FALSE(fleet.is_ok()) << one.spec;
    EXPECT_EQ(fleet.status().code(), StatusCode::kInvalidArgument);
    for (const std::string& word : one.words) {
      EXPECT_THAT(fleet.status().message(), HasSubstr(word)) << one.spec;
    }
  }
}

TEST(Fleet, of_a_machine_without_a_price_is_refused) {
  const std::string machine =
      "\n[[machine]]\nname = \"own\"\naccelerator = \"X\"\naccelerators = 1\nwatts = 1\ndate = \"2026-11-23\"\nsource = \"a test\"\n";
  const auto catalogue = parse_catalogue(shipped_catalogue_text() + machine, "my.toml");
  ASSERT_TRUE(catalogue.is_ok()) << catalogue.status().to_string();
  EXPECT_THAT(parse_fleet("train=1xown", *catalogue).status().message(), HasSubstr("without any [[price]] in my.toml"));
}

}  // namespace
}  // namespace darkroom
