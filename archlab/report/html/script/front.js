// The Pareto front, as `archlab results` finds it: what nothing beats in every figure, of equal points the first.

function front(rows, names, wants) {
  if (!names.length || wants.includes(0)) return [];
  const costs = names.map((name, index) => columnOf(name).map((value) => -wants[index] * value));
  const able = rows.filter((row) => isWanted(row) && costs.every((column) => !Number.isNaN(column[row])));
  able.sort((a, b) => {
    for (const column of costs) if (column[a] !== column[b]) return column[a] - column[b];
    return a - b;
  });
  const kept = [];
  for (const row of able) {
    if (!kept.some((better) => costs.every((column) => column[better] <= column[row]))) kept.push(row);
  }
  return kept;
}
