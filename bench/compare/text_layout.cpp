#include "bench/compare/text_layout.h"

#include <algorithm>

namespace shardbench::bench {
namespace {

void pad_to(std::string& line, std::size_t column) {
  if (line.size() < column) line.append(column - line.size(), ' ');
}

void end_line(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + '\n';
}

}  // namespace

std::vector<TextLayout::Group> TextLayout::groups() const {
  std::vector<Group> all;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const std::string& label = columns_[i].group;
    if (!all.empty() && !label.empty() && all.back().label == label) {
      all.back().end = i + 1;
    } else {
      all.push_back({label, i, i + 1});
    }
  }
  return all;
}

std::size_t TextLayout::gap_before(std::size_t column) const {
  if (column == 0) return 0;
  const Column& here = columns_[column];
  const Column& before = columns_[column - 1];
  // Ungrouped names at the left stand together.
  if (before.left && before.group.empty()) return 1;
  return here.group == before.group && !here.group.empty() ? 1 : 2;
}

std::size_t TextLayout::label_begin(const Group& group, std::size_t begin, std::size_t end) {
  const bool one = group.end - group.begin == 1;
  return one ? end - group.label.size() : begin + (end - begin - group.label.size()) / 2;
}

std::vector<std::size_t> TextLayout::widths(const std::vector<Group>& groups,
                                            const std::vector<TextLine>& lines) const {
  std::vector<std::size_t> width(columns_.size());
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    width[i] = columns_[i].name.size();
    for (const TextLine& line : lines) {
      if (i < line.cells.size()) width[i] = std::max(width[i], line.cells[i].size());
    }
  }
  // The label of a single column may reach left into the gap, but not into the label before it.
  std::size_t position = 0;
  std::size_t first_free = 0;
  for (const Group& group : groups) {
    const std::size_t begin = position + gap_before(group.begin);
    std::size_t end = position;
    for (std::size_t i = group.begin; i < group.end; ++i) end += gap_before(i) + width[i];
    const bool one = group.end - group.begin == 1;
    const std::size_t room = end - (one ? std::min(first_free, begin) : begin);
    if (group.label.size() > room) {
      width[group.begin] += group.label.size() - room;
      end += group.label.size() - room;
    }
    if (!group.label.empty()) first_free = label_begin(group, begin, end) + group.label.size() + 1;
    position = end;
  }
  return width;
}

std::string TextLayout::render(const std::vector<TextLine>& lines) const {
  const std::vector<Group> all_groups = groups();
  const std::vector<std::size_t> width = widths(all_groups, lines);
  std::vector<std::size_t> start(columns_.size());
  std::size_t position = 0;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    start[i] = position + gap_before(i);
    position = start[i] + width[i];
  }

  std::string out;
  std::string top;
  for (const Group& group : all_groups) {
    if (group.label.empty()) continue;
    const std::size_t end = start[group.end - 1] + width[group.end - 1];
    pad_to(top, label_begin(group, start[group.begin], end));
    top += group.label;
  }
  end_line(out, top);

  const auto put = [&](std::string& line, std::size_t i, const std::string& cell) {
    pad_to(line, columns_[i].left ? start[i] : start[i] + width[i] - cell.size());
    line += cell;
  };
  std::string names;
  for (std::size_t i = 0; i < columns_.size(); ++i) put(names, i, columns_[i].name);
  end_line(out, names);
  for (const TextLine& row : lines) {
    std::string line;
    for (std::size_t i = 0; i < row.cells.size(); ++i) put(line, i, row.cells[i]);
    if (!row.span.empty()) {
      pad_to(line, start[row.cells.size()]);
      line += row.span;
    }
    end_line(out, line);
  }
  return out;
}

}  // namespace shardbench::bench
