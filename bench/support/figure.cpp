#include "support/figure.hpp"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

namespace bankml::bench {
namespace {

// Three significant digits, whatever the size.
std::string number(double x) {
  const double size = x < 0 ? -x : x;
  return fmt::format("{:.{}f}", x, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

// What a figure reaches of its limit. Handing memory over beats the copy that it is held against by far.
std::string share_of(const Figure& f) {
  if (f.limit <= 0) return {};
  const std::string limit = fmt::format("{} {} ({})", number(f.limit), f.unit, f.limit_name);
  constexpr double kWellAbove = 2;
  if (f.share() >= kWellAbove) return fmt::format("{:.0f} times as good as {}", f.share(), limit);
  return fmt::format("{:.0f} % of {}", 100 * f.share(), limit);
}

// A field of a CSV file (RFC 4180, section 2).
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out.append(c == '"' ? 2 : 1, c);
  return out + "\"";
}

std::string setting_of(const Figure& f) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (f.tokens > 0) add(fmt::format("{} tokens", f.tokens));
  if (f.batch > 0) add(f.what == "decode" ? fmt::format("{} at once", f.batch) : fmt::format("{} a pass", f.batch));
  if (!f.kv.empty()) add("kv " + f.kv);
  return text;
}

}  // namespace

double Figure::median() const {
  std::vector<double> sorted = runs;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double Figure::share() const {
  if (limit <= 0) return 0;
  return less_is_better() ? limit / median() : median() / limit;
}

std::string table_of(const std::vector<Figure>& figures) {
  std::string out = fmt::format("{:<22} {:<34} {:>7} {:>10} {:<8} {:>19}  {}\n", "figure", "of", "threads", "median",
                                "", "(lowest-highest)", "share of the limit");
  std::string model;
  for (const Figure& f : figures) {
    if (f.model != model) out += fmt::format("\n{}\n", model = f.model);
    const std::string spread = fmt::format("({}-{})", number(f.lowest()), number(f.highest()));
    out += fmt::format("{:<22} {:<34} {:>7} {:>10} {:<8} {:>19}  {}\n", f.what, setting_of(f), f.threads,
                       number(f.median()), f.unit, spread, share_of(f));
  }
  return out;
}

std::string json_of(const std::vector<Figure>& figures, const std::string& machine) {
  boost::json::array rows;
  for (const Figure& f : figures) {
    boost::json::object row{{"what", f.what},       {"model", f.model},      {"kv", f.kv},     {"threads", f.threads},
                            {"tokens", f.tokens},   {"batch", f.batch},      {"unit", f.unit}, {"median", f.median()},
                            {"lowest", f.lowest()}, {"highest", f.highest()}};
    row["runs"] = boost::json::array(f.runs.begin(), f.runs.end());
    if (f.limit > 0) {
      row["limit"] = f.limit;
      row["limit_name"] = f.limit_name;
      row["share"] = f.share();
    }
    rows.push_back(std::move(row));
  }
  return boost::json::serialize(boost::json::object{{"machine", machine}, {"figures", std::move(rows)}}) + "\n";
}

std::string csv_of(const std::vector<Figure>& figures) {
  std::string out = "what,model,kv,threads,tokens,batch,unit,median,lowest,highest,limit,limit_name,share\n";
  for (const Figure& f : figures) {
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{}\n", quoted(f.what), quoted(f.model), f.kv, f.threads,
                       f.tokens, f.batch, f.unit, f.median(), f.lowest(), f.highest(), f.limit, quoted(f.limit_name),
                       f.share());
  }
  return out;
}

}  // namespace bankml::bench
