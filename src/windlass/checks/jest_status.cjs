// jest-junit reports a `todo` as if it had passed. With this it says what jest said of each test.
module.exports = (result) => ({ status: result.status });
