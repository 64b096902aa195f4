// Numbers, their text, and the ticks of axes.

/** About `count` round numbers from low to high, whose steps are 1, 2, 2.5 or 5 times a power of 10. */
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((size) => size * power >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** A number in few characters: 0.00025, 12.5, 1,234, 5.1e-7. */
function short(value, digits = 4) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e12) return value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  if (size >= 10 ** digits) return Math.round(value).toLocaleString("en-US");
  return Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 9 });
}

/** The fewest digits, from 4 to 12, that write these numbers exactly. */
function exactDigits(values) {
  let digits = 4;
  while (digits < 12 && values.some((value) => Number(value.toPrecision(digits)) !== value)) digits++;
  return digits;
}

/** A count or a large number: 950, 12.5k, 1.2M, 3B. */
function abbreviated(value, digits = 4) {
  for (const [size, unit] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= size * 0.9995) return short(value / size, digits) + unit;
  return short(value, digits);
}

/** A duration: 42s, 3m05s, 2h10m. */
function duration(seconds) {
  if (seconds < 60) return `${short(seconds, 3)}s`;
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const padded = (n) => String(n).padStart(2, "0");
  return hours ? `${hours}h${padded(minutes)}m` : `${minutes}m${padded(whole % 60)}s`;
}

/** Round durations: in seconds, minutes or hours, whichever are readable. */
function durationTicks(low, high, count) {
  const unit = high > 7200 ? 3600 : high > 300 ? 60 : 1;
  const name = { 3600: "h", 60: "min", 1: "s" }[unit];
  const found = ticks(low / unit, high / unit, count);
  const digits = exactDigits(found);
  return found.map((n) => ({ value: n * unit, text: `${short(n, digits)} ${name}` }));
}

/** Round counts. */
function countTicks(low, high, count) {
  const found = ticks(low, high, count);
  const digits = exactDigits(found);
  return found.map((value) => ({ value, text: abbreviated(value, digits) }));
}

/** The place of the number in a rising list that is nearest to a value. */
function nearest(numbers, value) {
  let [low, high] = [0, numbers.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < value) low = middle;
    else high = middle;
  }
  return value - numbers[low] <= numbers[high] - value ? low : high;
}
