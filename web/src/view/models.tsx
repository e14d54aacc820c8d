import type { EdgeNodeSnapshot } from "../../../gen/ts/iop/control/v1/control_pb.js";
import { unknown } from "../format.js";

/** The catalogue: what clients may ask for, and where it may run. */
export function ModelsPage({ snapshot }: { snapshot: EdgeNodeSnapshot }) {
  return (
    <div className="page">
      <section className="panel">
        <h2 id="models">Models</h2>
        <section className="scroll" aria-labelledby="models" tabIndex={0}>
          <table data-testid="models">
            <thead>
              <tr>
                <th scope="col">Model</th>
                <th scope="col">Kind</th>
                <th scope="col" className="num">
                  Context window
                </th>
                <th scope="col">May run on</th>
              </tr>
            </thead>
            <tbody>
              {snapshot.models.map((m) => (
                <tr key={`${m.route} ${m.id}`}>
                  <th scope="row">{m.id}</th>
                  <td>{m.route ? "direct route" : "pool"}</td>
                  <td className="num">{m.contextWindowTokens === 0 ? unknown : m.contextWindowTokens}</td>
                  <td>
                    <ul>
                      {m.candidates.map((c) => (
                        <li key={`${c.node}/${c.provider}`}>
                          {c.node}/{c.provider} <span className="quiet">as {c.target}</span>
                        </li>
                      ))}
                    </ul>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
        {snapshot.models.length === 0 ? <p className="quiet">No model is configured.</p> : null}
      </section>
    </div>
  );
}
