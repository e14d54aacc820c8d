import { useId } from "react";
import { duration } from "../format.js";

/** One line of a plot. A value that is not known leaves a gap. */
export interface Series {
  name: string;
  /** A class that gives it colour and dash. */
  look: "a" | "b" | "c";
  values: readonly (number | undefined)[];
}

/** The path through values, broken where one is unknown. */
export function path(values: readonly (number | undefined)[], x: (i: number) => number, y: (v: number) => number): string {
  let d = "";
  let pen = "M";
  values.forEach((v, i) => {
    if (v === undefined) {
      pen = "M";
      return;
    }
    d += `${pen}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = "L";
  });
  return d;
}

/** A round number at or above the greatest value, and not below least. */
export function ceiling(greatest: number, least = 4): number {
  if (greatest <= least) {
    return least;
  }
  const power = 10 ** Math.floor(Math.log10(greatest));
  return [1, 2, 4, 5, 8, 10].map((m) => m * power).find((m) => m >= greatest) ?? greatest;
}

/** A small line without axes; its words say what it shows. */
export function Sparkline({ name, series, values, top }: { name: string; series: string; values: readonly (number | undefined)[]; top: number }) {
  const width = 240;
  const height = 28;
  const x = (i: number) => 1 + (i * (width - 2)) / Math.max(1, values.length - 1);
  const y = (v: number) => height - 2 - (Math.min(v, top) * (height - 4)) / Math.max(1, top);
  const seen = values.filter((v) => v !== undefined);
  const last = seen.at(-1);
  const words = seen.length === 0 ? `${name}: no history yet` : `${name}: now ${last}, at most ${Math.max(...seen)} in 15 minutes`;
  return (
    <svg className={`sparkline ${series}`} data-testid="sparkline" data-series={series} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={words}>
      <path d={path(values, x, y)} className="stroke" />
    </svg>
  );
}

/** A plot over time with the same numbers in a table beside it. */
export function Plot({
  title,
  id,
  unit,
  times,
  series,
  least,
  show,
}: {
  title: string;
  id: string;
  unit: string;
  times: readonly number[];
  series: readonly Series[];
  /** The axis reaches so far at least. */
  least?: number;
  show(value: number | undefined): string;
}) {
  const heading = useId();
  const [left, right, top, bottom, width, height] = [52, 8, 8, 20, 640, 180];
  const known = series.flatMap((s) => s.values.filter((v) => v !== undefined));
  const most = ceiling(known.length === 0 ? 0 : Math.max(...known), least);
  const x = (i: number) => left + (i * (width - left - right)) / Math.max(1, times.length - 1);
  const y = (v: number) => height - bottom - (v * (height - top - bottom)) / most;
  const time = (ms: number | undefined) =>
    ms === undefined ? "" : new Date(ms).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
  const ticks = times.length < 2 ? [] : [0, Math.floor((times.length - 1) / 2), times.length - 1];
  return (
    <figure className="plot" data-testid="plot" data-series={id} aria-labelledby={heading}>
      <figcaption>
        <h2 id={heading}>
          {title} <span className="quiet">{unit}</span>
        </h2>
        <ul className="legend" aria-label="Lines">
          {series.map((s) => (
            <li key={s.name}>
              <svg width="22" height="8" viewBox="0 0 22 8" aria-hidden="true">
                <path d="M0 4H22" className={`stroke ${s.look}`} />
              </svg>
              {s.name} <b>{show(s.values.findLast((v) => v !== undefined))}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`${title} over time; the table beside has the numbers`}>
        {[0, most / 2, most].map((v) => (
          <g key={v}>
            <path d={`M${left} ${y(v)}H${width - right}`} className="grid" />
            <text x={left - 6} y={y(v) + 4} textAnchor="end">
              {show(v)}
            </text>
          </g>
        ))}
        {ticks.map((i, n) => (
          <text key={i} x={x(i)} y={height - 4} textAnchor={n === 0 ? "start" : n === 1 ? "middle" : "end"}>
            {time(times[i])}
          </text>
        ))}
        {series.map((s) => (
          <path key={s.name} d={path(s.values, x, y)} className={`stroke ${s.look}`} />
        ))}
      </svg>
      <details>
        <summary>Show as table</summary>
        <section className="scroll" tabIndex={0} aria-label={`${title}, table`}>
          <table>
            <caption className="unseen">{title}, the newest first</caption>
            <thead>
              <tr>
                <th scope="col">Time</th>
                {series.map((s) => (
                  <th scope="col" key={s.name} className="num">
                    {s.name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {times
                .map((at, i) => ({ at, i }))
                .reverse()
                .map(({ at, i }) => (
                  <tr key={at}>
                    <th scope="row">{new Date(at).toLocaleTimeString(undefined, { hour12: false })}</th>
                    {series.map((s) => (
                      <td key={s.name} className="num">
                        {show(s.values[i])}
                      </td>
                    ))}
                  </tr>
                ))}
            </tbody>
          </table>
        </section>
      </details>
    </figure>
  );
}

/** Shows milliseconds. */
export function showDuration(value: number | undefined): string {
  return value === 0 ? "0s" : duration(value);
}
