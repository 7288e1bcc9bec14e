// A health client of another language: grpc-js with the service of grpc-health-check.
//
//   node foreign_health.js ADDRESS check NAME SECONDS    prints the status, or the name of the error
//   node foreign_health.js ADDRESS list                  prints a JSON object of all statuses
//   node foreign_health.js ADDRESS watch NAME            prints each status on a line; at the end the
//                                                        name of the status code

const grpc = require("@grpc/grpc-js");
const { service } = require("grpc-health-check");

const [address, what, name, seconds] = process.argv.slice(2);
const Client = grpc.makeClientConstructor(service, "Health");
const client = new Client(address, grpc.credentials.createInsecure());
const deadline = () => Date.now() + 1000 * Number(seconds || 10);
const code = (error) => Object.keys(grpc.status).find((key) => grpc.status[key] === error.code);

if (what === "check") {
  client.check({ service: name }, { deadline: deadline() }, (error, answer) => {
    console.log(error ? code(error) : answer.status);
    client.close();
  });
} else if (what === "list") {
  client.list({}, { deadline: deadline() }, (error, answer) => {
    console.log(error ? code(error) : JSON.stringify(answer.statuses));
    client.close();
  });
} else {
  const stream = client.watch({ service: name });
  stream.on("data", (answer) => console.log(answer.status));
  stream.on("error", () => {});
  stream.on("status", (status) => {
    console.log(code(status));
    client.close();
  });
}
