'use strict';

// Calls counts the calls of a client, and how many were answered as the API's documentation says.
class Calls {
  constructor(client) {
    this.client = client;
    this.made = 0;
    this.wrong = [];
  }

  // ok makes a call that is to succeed, and has check look at the body of its reply. check returns what is wrong with it: a
  // text, a list of texts, or nothing.
  async ok(fact, action, params, check = () => []) {
    this.made++;
    let body;
    try {
      body = await this.client.call(action, params);
    } catch (error) {
      this.wrong.push(`${fact}: ${action} is refused: ${JSON.stringify(this.client.refusal(error))}`);
      throw new Ended();
    }
    const wrong = [check(body) || []].flat();
    if (!uuid.test(body.RequestId)) {
      wrong.push(`RequestId is ${JSON.stringify(body.RequestId)}`);
    }
    if (wrong.length > 0) {
      this.wrong.push(`${fact}: ${action}: ${wrong.join('; ')}`);
    }
    return body;
  }

  // refused makes a call that is to be refused with one of the codes, each written as HTTP status and code: "404
  // InvalidDiskId.NotFound". With "200" among them it may succeed, too: the documentation says both.
  async refused(fact, action, params, ...codes) {
    this.made++;
    let got = '200';
    try {
      await this.client.call(action, params);
    } catch (error) {
      const refusal = this.client.refusal(error);
      got = `${refusal.status} ${refusal.code}`;
      if (!uuid.test(refusal.requestId) || !refusal.message) {
        this.wrong.push(`${fact}: ${action}: the error of the SDK has no request ID or no message: ${JSON.stringify(refusal)}`);
        return;
      }
    }
    if (!codes.includes(got)) {
      this.wrong.push(`${fact}: ${action} is answered ${got}, want ${codes.join(' or ')}`);
    }
  }

  // patiently makes a call until it succeeds or is refused with any other code than the one that asks to come back, for a
  // minute at most. It counts as one call.
  async patiently(fact, action, params, later) {
    const end = Date.now() + 60000;
    for (;;) {
      try {
        await this.client.call(action, params);
        this.made++;
        return;
      } catch (error) {
        const refusal = this.client.refusal(error);
        if (refusal.code !== later || Date.now() > end) {
          this.made++;
          this.wrong.push(`${fact}: ${action} is refused: ${JSON.stringify(refusal)}`);
          throw new Ended();
        }
      }
      await pause();
    }
  }

  // until repeats a read until check finds nothing wrong, for a minute at most. It counts as one call.
  async until(fact, action, params, check) {
    const end = Date.now() + 60000;
    for (;;) {
      const body = await this.client.call(action, params).catch(() => null);
      const wrong = body ? [check(body) || []].flat() : ['refused'];
      if (wrong.length === 0 || Date.now() > end) {
        this.made++;
        if (wrong.length > 0) {
          this.wrong.push(`${fact}: ${action}, for a minute: ${wrong.join('; ')}`);
          throw new Ended();
        }
        return body;
      }
      await pause();
    }
  }
}

const pause = () => new Promise((resolve) => setTimeout(resolve, 50));

// Ended is thrown when nothing that follows can be tried.
class Ended extends Error {}

// A request ID is a UUID in upper case (Response structure).
const uuid = /^[0-9A-F]{8}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{12}$/;

// differs says which fields of an object are not as wanted.
function differs(object, want) {
  return Object.keys(want)
    .filter((name) => JSON.stringify(object && object[name]) !== JSON.stringify(want[name]))
    .map((name) => `${name} is ${JSON.stringify(object && object[name])}, want ${JSON.stringify(want[name])}`);
}

module.exports = { Calls, Ended, differs };
