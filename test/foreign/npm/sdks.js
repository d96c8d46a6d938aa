'use strict';

// The SDKs. Each client takes and returns parameters by the names that they have on the wire, whatever the SDK makes of them:
//   call(action, params)  returns the body of the reply, or throws the SDK's own error
//   refusal(error)        returns what that error says: status, code, message, requestId

const path = require('path');

const version = '2014-05-26';

// keys are id, secret and, of temporary ones, token; address is HOST:PORT.
function ecs20140526({ address, region, keys }) {
  const { default: Client, ...models } = require('@alicloud/ecs20140526');
  const { $OpenApiUtil } = require('@alicloud/openapi-core');
  const { cast } = require('@darabonba/typescript');
  const client = new Client(new $OpenApiUtil.Config({
    accessKeyId: keys.id, accessKeySecret: keys.secret, securityToken: keys.token, regionId: region, endpoint: address, protocol: 'HTTP',
  }));
  return {
    async call(action, params) {
      const request = cast({ RegionId: region, ...params }, new models[`${action}Request`]({}));
      const reply = await client[action[0].toLowerCase() + action.slice(1)](request);
      if (reply.statusCode !== 200) {
        throw new Error(`status ${reply.statusCode} is no error to the SDK`);
      }
      return reply.body.toMap();
    },
    // The SDK puts code, status, message and request ID into one text.
    refusal({ statusCode, code, message, data = {} }) {
      const consistent = message === `${code}: code: ${statusCode}, ${data.Message} request id: ${data.RequestId}`;
      return { status: statusCode, code, message: consistent && data.Message, requestId: data.RequestId, says: message };
    },
  };
}

function popCore({ address, region, keys }) {
  const RPCClient = require('@alicloud/pop-core').RPCClient;
  const client = (apiVersion) => new RPCClient({
    accessKeyId: keys.id, accessKeySecret: keys.secret, securityToken: keys.token, endpoint: `http://${address}`, apiVersion,
  });
  const ecs = client(version), sts = client('2015-04-01');
  return {
    async call(action, params) {
      // Reads go by GET with a query, all else by POST with a form: the SDK does both.
      const method = action.startsWith('Describe') ? 'GET' : 'POST';
      return (['AssumeRole', 'GetCallerIdentity'].includes(action) ? sts : ecs).request(action, { RegionId: region, ...params }, { method });
    },
    refusal({ code, name, message, data = {}, entry }) {
      const consistent = name === `${code}Error` && message.startsWith(data.Message);
      return { status: entry && entry.response.statusCode, code, message: consistent && data.Message, requestId: data.RequestId, says: message };
    },
  };
}

const sdks = { ecs20140526, 'pop-core': popCore };

// open returns the client of an SDK by its name.
function open(name, settings) { return sdks[name](settings); }

// versionOf returns the version of an SDK that is installed.
function versionOf(name) {
  const main = require.resolve(`@alicloud/${name}`);
  const at = main.lastIndexOf(path.join('node_modules', '@alicloud', name));
  return require(path.join(main.slice(0, at), 'node_modules', '@alicloud', name, 'package.json')).version;
}

module.exports = { open, versionOf };
