#include "serving/dataset_opener.h"

#include <utility>

#include "darkroom/core/base64.h"
#include "darkroom/core/utf8.h"
#include "darkroom/image/png.h"
#include "opening/open_stores.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostCaptionBytes = 4000;

std::string plain_text(std::string_view text) { return replace_invalid_utf8(text.substr(0, kMostCaptionBytes)).first; }

Json table_json(const ReportTable& table) { return {{"title", table.title}, {"head", table.head}, {"rows", table.rows}}; }

Json picture_json(const RowCard::Picture& picture) {
  Json json = {{"label", plain_text(picture.label)}, {"png", nullptr}};
  if (!picture.image.pixels.empty()) {
    json["png"] = encode_base64(encode_png(picture.image));
    json["width"] = picture.image.width;
    json["height"] = picture.image.height;
  }
  return json;
}

Json card_json(int64_t number, const RowCard& card) {
  Json json = {{"row", number}, {"caption", plain_text(card.caption)}, {"pictures", Json::array()}, {"facts", Json::array()}};
  for (const RowCard::Picture& picture : card.pictures) {
    json["pictures"].push_back(picture_json(picture));
  }
  for (const auto& [name, value] : card.facts) {
    json["facts"].push_back({plain_text(name), plain_text(value)});
  }
  return json;
}

/// The pages of a dataset as JSON.
class PagedDataset final : public ServedDataset {
 public:
  PagedDataset(const std::string& name, std::unique_ptr<DatasetPages> pages) : pages_(std::move(pages)) {
    facts_ = {{"name", name},
              {"kind", pages_->report().kind},
              {"rows", pages_->num_rows()},
              {"decodes", pages_->can_decode()},
              {"rows_by_error", pages_->rows_by_error()},
              {"tables", Json::array()}};
    for (const ReportTable& table : pages_->report().tables) {
      facts_["tables"].push_back(table_json(table));
    }
  }

  const Json& facts() const override { return facts_; }

  Result<Json> rows(const DatasetRowsQuestion& asked, const std::stop_token& stop) override {
    DARKROOM_ASSIGN_OR_RETURN(
        const ShownRows found,
        pages_->rows({.first = asked.from, .count = asked.count, .words = asked.words, .decodes = asked.decodes}, stop));
    Json json = {{"rows", Json::array()}, {"next", found.next < pages_->num_rows() ? Json(found.next) : Json()}};
    for (size_t i = 0; i < found.cards.size(); ++i) {
      json["rows"].push_back(card_json(found.numbers[i], found.cards[i]));
    }
    return json;
  }

 private:
  const std::unique_ptr<DatasetPages> pages_;
  Json facts_;
};

}  // namespace

Status ServedDatasets::open(const std::vector<std::string>& uris, const DatasetPagesOptions& usual, const std::stop_token& stop) {
  const std::stop_callback at_stop(stop, [this] { end(); });  // A stop gives later reads its patience.
  stores_ = open_stores(metrics_, ends_.get_token());
  names_ = dataset_names(uris);
  for (size_t i = 0; i < uris.size(); ++i) {
    DatasetPagesOptions options = usual;
    options.uri = uris[i];
    auto pages = DatasetPages::open(*stores_, options, stop);
    if (!pages.is_ok()) {
      return pages.status().with_context("--dataset");
    }
    datasets_.push_back(std::make_unique<PagedDataset>(names_[i], *std::move(pages)));
  }
  return Status::ok();
}

std::vector<NamedDataset> ServedDatasets::named() const {
  std::vector<NamedDataset> named;
  for (size_t i = 0; i < datasets_.size(); ++i) {
    named.push_back({.name = names_[i], .dataset = datasets_[i].get()});
  }
  return named;
}

}  // namespace darkroom
