import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { age, bytes, clock, count, duration, known, millis, num, plural, rate, since, sum, unknown } from "./format.js";

test("K05 64-bit values add up as numbers, whatever they come as", () => {
  expect(sum([1n, 2n])).toBe(3);
  expect(sum(["1", "2", 3, 4n, undefined, null, ""])).toBe(10);
  expect(num("12")).toBe(12);
  expect(num(0n)).toBe(0);
});

test("J11 what is not there is unknown, and breaks nothing", () => {
  for (const nothing of [undefined, null, "", "no number"]) {
    expect(duration(nothing)).toBe(unknown);
    expect(count(nothing)).toBe(unknown);
    expect(bytes(nothing)).toBe(unknown);
  }
  expect(age(undefined)).toBe(unknown);
  expect(rate(undefined)).toBe(unknown);
  expect(clock(undefined)).toBe(unknown);
  expect(known("")).toBe(unknown);
  expect(known(null)).toBe(unknown);
  expect(millis(undefined)).toBeUndefined();
  expect(since(null, 5)).toBeUndefined();
});

test.each([
  [0, "0s"],
  [40, "0.1s"],
  [420, "0.4s"],
  [999, "1s"],
  [41_000, "41s"],
  [59_600, "1m 00s"],
  [185_000, "3m 05s"],
  [7_800_000, "2h 10m"],
  [356_400_000, "4d 3h"],
  [41_000n, "41s"],
])("%s ms is %s", (ms, text) => expect(duration(ms)).toBe(text));

test("ages are whole seconds, never ahead and never negative", () => {
  expect(age(1999)).toBe("1s");
  expect(age(0)).toBe("0s");
  expect(since(timestampFromMs(5000), 4000)).toBe(0);
  expect(since(timestampFromMs(5250), 6000)).toBe(750);
});

test("counts and sizes are short", () => {
  expect(count(9999)).toBe("9999");
  expect(count(110_400n)).toBe("110k");
  expect(count(999_600)).toBe("1.0M");
  expect(bytes(512)).toBe("512 B");
  expect(bytes(1536n)).toBe("1.5 KiB");
  expect(rate(4.24)).toBe("4.2");
  expect(rate(42.4)).toBe("42");
  expect(plural(1, "slot")).toBe("1 slot");
  expect(plural(2, "slot")).toBe("2 slots");
});
