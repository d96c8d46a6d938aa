'use strict';

// Leads disks, snapshots and tags through all of their lives with one of the SDKs, and holds every reply against what the
// documentation of ECS says. The last line of the output says how many calls were made and how many were as expected; the exit
// code is 0 if all were.
//
//   node life.js ecs20140526|pop-core
//
// The environment says where: ECS_ADDRESS (HOST:PORT), ECS_REGION, ECS_ZONE, ECS_INSTANCE, ECS_ROLE (the name of a RAM role that
// the key may assume), and the access key in ECS_KEY_ID and ECS_KEY_SECRET.

const { Calls, Ended, differs } = require('./calls');
const { open, versionOf } = require('./sdks');

const env = process.env;
const sdk = process.argv[2];
const place = { address: env.ECS_ADDRESS, region: env.ECS_REGION };
const keys = { id: env.ECS_KEY_ID, secret: env.ECS_KEY_SECRET };
const zone = env.ECS_ZONE, instance = env.ECS_INSTANCE;
const calls = new Calls(open(sdk, { ...place, keys }));
const run = `${sdk}-${Date.now()}`; // in names and client tokens

const ids = (list) => JSON.stringify(list);
const byId = (id) => ({ DiskIds: ids([id]) });
const diskIn = (body) => body.Disks.Disk[0];
const tagsOf = (resource) => Object.fromEntries(resource.Tags.Tag.map((t) => [t.TagKey, t.TagValue]));
const inState = (state) => (body) => differs(diskIn(body), { Status: state });
const missing = { disk: 'd-bp1thereisnosuchdisk0', snapshot: 's-bp1thereisnosuchsnap0', instance: 'i-bp1thereisnosuchinst' };

// settle waits until a disk is in a state.
const settle = (id, state) => calls.until(`a disk becomes ${state}`, 'DescribeDisks', byId(id), inState(state));

async function main() {
  const steps = [whereThingsAre, aDiskIsMade, namesAndTags, attachedAndGrown, changedInPlace, snapshots, groups, detachedAndDeleted, paging, otherKeys];
  for (const step of steps) {
    try {
      await step();
    } catch (error) {
      if (!(error instanceof Ended)) {
        calls.wrong.push(`${step.name}: ${error.stack}`);
      }
      if (step === aDiskIsMade) {
        break;
      }
    }
  }
  for (const line of calls.wrong) {
    console.log(line);
  }
  console.log(`${sdk} ${versionOf(sdk)} on node ${process.version}: ${calls.made} calls, ${calls.made - calls.wrong.length} as expected`);
  process.exitCode = calls.wrong.length > 0 ? 1 : 0;
}

async function whereThingsAre() {
  await calls.ok('the region is listed', 'DescribeRegions', {}, (body) =>
    body.Regions.Region.some((r) => r.RegionId === place.region) ? [] : ['it is not']);
  await calls.ok('the zone is listed', 'DescribeZones', {}, (body) =>
    body.Zones.Zone.some((z) => z.ZoneId === zone && z.AvailableDiskCategories.DiskCategories.includes('cloud_essd')) ? [] : ['it is not']);
  const { Instances } = await calls.ok('the instance runs', 'DescribeInstances', { InstanceIds: ids([instance]) }, (body) =>
    differs(body.Instances.Instance[0], { InstanceId: instance, Status: 'Running', ZoneId: zone, RegionId: place.region }));
  const type = Instances.Instance[0].InstanceType;
  await calls.ok('an instance type says how many disks it takes', 'DescribeInstanceTypes', { InstanceTypes: [type] }, (body) => {
    const [t] = body.InstanceTypes.InstanceType;
    return t.InstanceTypeId === type && t.DiskQuantity > 1 && type.startsWith(`${t.InstanceTypeFamily}.`) ? [] : [JSON.stringify(t)];
  });
  await calls.ok('there are ESSDs to be had', 'DescribeAvailableResource', { DestinationResource: 'DataDisk', ResourceType: 'disk', InstanceType: type, ZoneId: zone }, (body) => {
    const resources = body.AvailableZones.AvailableZone[0].AvailableResources.AvailableResource;
    const found = resources.find((r) => r.Type === 'DataDisk').SupportedResources.SupportedResource.find((s) => s.Value === 'cloud_essd');
    return differs(found, { Status: 'Available', StatusCategory: 'WithStock', Unit: 'GiB' });
  });
  await calls.ok('an instance has a system disk', 'DescribeDisks', { InstanceId: instance, DiskType: 'system' }, (body) =>
    differs(diskIn(body), { Type: 'system', Status: 'In_use', InstanceId: instance }));
  if (sdk === 'pop-core') { // the other has no method for it
    await calls.refused('an unknown action', 'MakeDisk', {}, '404 InvalidAction.NotFound');
  }
}

const made = { name: `数据盘-ä_${Date.now()}`, description: 'Ein Datenträger: 100% & 数据 + "=" 🙂 ~*', token: `token-${run}` };
const order = {
  ZoneId: zone, DiskCategory: 'cloud_essd', PerformanceLevel: 'PL1', Size: 20, DiskName: made.name, Description: made.description,
  ClientToken: made.token, Tag: [{ Key: 'run', Value: run }, { Key: '团队', Value: '存储 + Größe' }, { Key: 'empty', Value: '' }],
};
let disk;

async function aDiskIsMade() {
  disk = (await calls.ok('a disk is made', 'CreateDisk', order, (body) => /^d-[a-z0-9]+$/.test(body.DiskId) ? [] : [body.DiskId])).DiskId;
  await calls.ok('the same token again is the same disk', 'CreateDisk', order, (body) => differs(body, { DiskId: disk }));
  // 400 in the table of common errors, 403 in some actions' own.
  await calls.refused('the same token for another size', 'CreateDisk', { ...order, Size: 21 }, '400 IdempotentParameterMismatch', '403 IdempotentParameterMismatch');
  await settle(disk, 'Available');
  for (const [fact, change, ...codes] of [
    ['a tag key twice', { Tag: [{ Key: 'a', Value: '1' }, { Key: 'a', Value: '2' }] }, '400 Duplicate.TagKey'],
    ['a tag key that is reserved', { Tag: [{ Key: 'acs:a', Value: '1' }] }, '400 InvalidTagKey.Malformed'],
    ['a name that begins with a digit', { DiskName: '1-disk' }, '400 InvalidDiskName.Malformed'],
    ['an unknown zone', { ZoneId: `${place.region}-zz` }, '404 InvalidZoneId.NotFound'],
    ['an unknown snapshot', { SnapshotId: missing.snapshot }, '404 InvalidSnapshotId.NotFound'],
    ['less than PL2 takes', { PerformanceLevel: 'PL2' }, '403 OperationDenied.PerformanceLevelNotMatch'],
    ['IOPS for a category that has none to provision', { ProvisionedIops: 1000 }, '400 ProvisionedIopsForDiskCategoryUnsupported'],
  ]) {
    await calls.refused(fact, 'CreateDisk', { ...order, ClientToken: `${made.token}-${change.DiskName || Object.keys(change)[0]}`, ...change }, ...codes);
  }
}

async function namesAndTags() {
  await calls.ok('a disk is as it was ordered', 'DescribeDisks', byId(disk), (body) => [
    ...differs(diskIn(body), {
      DiskId: disk, DiskName: made.name, Description: made.description, Size: 20, Category: 'cloud_essd', PerformanceLevel: 'PL1',
      ZoneId: zone, RegionId: place.region, Type: 'data', Portable: true, SerialNumber: disk.slice(2), InstanceId: '',
    }),
    ...differs(tagsOf(diskIn(body)), { run, 团队: '存储 + Größe', empty: '' }),
  ]);
  const only = (body) => differs({ ids: body.Disks.Disk.map((d) => d.DiskId) }, { ids: [disk] });
  await calls.ok('a search by one tag', 'DescribeDisks', { Tag: [{ Key: 'run', Value: run }] }, only);
  await calls.ok('a search by two tags finds what has both', 'DescribeDisks', { Tag: [{ Key: 'run', Value: run }, { Key: '团队', Value: '存储 + Größe' }] }, only);
  await calls.ok('a search by a tag that nothing has', 'DescribeDisks', { Tag: [{ Key: 'run', Value: `${run}x` }] }, (body) => differs(body, { TotalCount: 0, Disks: { Disk: [] } }));
  await calls.ok('a search by name', 'DescribeDisks', { DiskName: made.name }, only);
  await calls.ok('an empty list of IDs finds nothing', 'DescribeDisks', { DiskIds: '[]' }, (body) => differs(body.Disks, { Disk: [] }));
  await calls.ok('an ID of nothing finds nothing', 'DescribeDisks', byId(missing.disk), (body) => differs(body.Disks, { Disk: [] }));
  await calls.refused('101 IDs', 'DescribeDisks', { DiskIds: ids(Array.from({ length: 101 }, (_, n) => `d-${n}`)) }, '403 InvalidDiskIds.Malformed');
  await calls.refused('IDs that are no JSON', 'DescribeDisks', { DiskIds: disk }, '400 InvalidParameter.DiskIds', '403 InvalidDiskIds.Malformed');
  const listed = { ResourceType: 'disk', ResourceId: [disk] };
  await calls.ok('tags are added', 'TagResources', { ...listed, Tag: [{ Key: 'tier', Value: 'schnell' }, { Key: 'run', Value: run }] });
  await calls.ok('tags are listed', 'ListTagResources', listed, (body) => {
    const tags = Object.fromEntries(body.TagResources.TagResource.map((t) => [t.TagKey, t.TagValue]));
    return differs(tags, { run, tier: 'schnell', 团队: '存储 + Größe' });
  });
  await calls.ok('tags are taken away', 'UntagResources', { ...listed, TagKey: ['tier', 'empty'] });
  await calls.ok('tags that are gone are gone', 'DescribeDisks', byId(disk), (body) => differs({ keys: Object.keys(tagsOf(diskIn(body))).sort() }, { keys: ['run', '团队'] }));
  await calls.refused('tags of a disk that does not exist', 'TagResources', { ResourceType: 'disk', ResourceId: [missing.disk], Tag: [{ Key: 'a', Value: 'b' }] }, '404 InvalidResourceId.NotFound');
  const renamed = { DiskName: '改名_disk' };
  await calls.ok('a disk is renamed', 'ModifyDiskAttribute', { DiskId: disk, DiskName: renamed.DiskName });
  await calls.ok('a new name is shown', 'DescribeDisks', byId(disk), (body) => differs(diskIn(body), { DiskName: renamed.DiskName, Description: made.description }));
}

async function attachedAndGrown() {
  const pair = { InstanceId: instance, DiskId: disk };
  await calls.refused('an attach of nothing', 'AttachDisk', { ...pair, DiskId: missing.disk }, '404 InvalidDiskId.NotFound');
  await calls.refused('an attach to nothing', 'AttachDisk', { ...pair, InstanceId: missing.instance }, '404 InvalidInstanceId.NotFound');
  await calls.patiently('a disk is attached', 'AttachDisk', pair, 'IncorrectDiskStatus.Initializing');
  await settle(disk, 'In_use');
  await calls.ok('an attached disk says where', 'DescribeDisks', { InstanceId: instance, DiskType: 'data' }, (body) => [
    ...differs(body, { TotalCount: 1 }),
    ...differs(diskIn(body), { DiskId: disk, InstanceId: instance, DeleteWithInstance: false }),
    ...differs(diskIn(body).Attachments.Attachment[0], { InstanceId: instance }),
  ]);
  await calls.refused('a second attach', 'AttachDisk', pair, '403 IncorrectDiskStatus', '404 InvalidDisk.InUse');
  await calls.refused('a deletion of a disk in use', 'DeleteDisk', { DiskId: disk }, '403 IncorrectDiskStatus', '403 DiskStillAttached');
  const grow = { DiskId: disk, Type: 'online' };
  await calls.ok('a disk grows while it is in use', 'ResizeDisk', { ...grow, NewSize: 40, ClientToken: `grow-${run}` });
  await calls.until('the new size is shown', 'DescribeDisks', byId(disk), (body) => differs(diskIn(body), { Size: 40, Status: 'In_use' }));
  await calls.refused('a disk does not shrink', 'ResizeDisk', { ...grow, NewSize: 30 }, '403 InvalidDiskSize', '403 InvalidDiskSize.TooSmall', '400 LastOrderProcessing');
  await calls.refused('a disk of nothing grows', 'ResizeDisk', { ...grow, DiskId: missing.disk, NewSize: 50 }, '404 InvalidDiskId.NotFound');
}

async function changedInPlace() {
  const change = { DiskId: disk };
  await calls.refused('a level that is too large for the disk', 'ModifyDiskSpec', { ...change, PerformanceLevel: 'PL3' }, '403 OperationDenied.PerformanceLevelNotMatch');
  await calls.refused('a level that does not exist', 'ModifyDiskSpec', { ...change, PerformanceLevel: 'PL9' }, '400 InvalidPerformanceLevel.Malformed');
  await calls.refused('a change to what is', 'ModifyDiskSpec', { ...change, DiskCategory: 'cloud_essd', PerformanceLevel: 'PL1' }, '403 NoChangeInDiskCategoryAndPerformanceLevel');
  await calls.refused('a change that would be done', 'ModifyDiskSpec', { ...change, DiskCategory: 'cloud_auto', DryRun: true }, '400 DryRunOperation');
  // The SDKs send a parameter that is set to nothing (alibaba-cloud-csi-driver, pull request 1740).
  await calls.refused('a level of nothing', 'ModifyDiskSpec', { ...change, DiskCategory: 'cloud_auto', PerformanceLevel: '' }, '400 InvalidDiskCategory.NotSupported');
  const { TaskId } = await calls.ok('a category is changed', 'ModifyDiskSpec', { ...change, DiskCategory: 'cloud_auto', ProvisionedIops: 1000 }, (body) => body.TaskId ? [] : ['there is no TaskId']);
  await calls.until('the task ends', 'DescribeTasks', { TaskIds: TaskId }, (body) =>
    differs(body.TaskSet.Task[0], { TaskId, TaskAction: 'ModifyDiskSpec', TaskStatus: 'Finished' }));
  await calls.until('the new category is shown', 'DescribeDisks', byId(disk), (body) =>
    differs(diskIn(body), { Category: 'cloud_auto', ProvisionedIops: 1000, Status: 'In_use', Size: 40 }));
}

async function snapshots() {
  const cut = { DiskId: disk, SnapshotName: '快照-1', Description: 'vor dem Umbau & danach', ClientToken: `cut-${run}`, Tag: [{ Key: 'run', Value: run }] };
  const { SnapshotId } = await calls.ok('a snapshot is made', 'CreateSnapshot', cut, (body) => /^s-[a-z0-9]+$/.test(body.SnapshotId) ? [] : [body.SnapshotId]);
  await calls.ok('the same token again is the same snapshot', 'CreateSnapshot', cut, (body) => differs(body, { SnapshotId }));
  await calls.until('a snapshot comes to its end', 'DescribeSnapshots', { SnapshotIds: ids([SnapshotId]) }, (body) =>
    differs(body.Snapshots.Snapshot[0], {
      SnapshotId, SnapshotName: '快照-1', Description: cut.Description, Status: 'accomplished', Progress: '100%', Available: true,
      SourceDiskId: disk, SourceDiskSize: '40', SourceDiskType: 'data', SnapshotType: 'user',
    }));
  await calls.ok('a search by disk and tag', 'DescribeSnapshots', { DiskId: disk, Tag: [{ Key: 'run', Value: run }] }, (body) => differs(body, { TotalCount: 1 }));
  await calls.refused('a snapshot of nothing', 'CreateSnapshot', { DiskId: missing.disk }, '404 InvalidDiskId.NotFound');
  const { DiskId } = await calls.ok('a disk is made from it', 'CreateDisk', { ZoneId: zone, DiskCategory: 'cloud_essd', SnapshotId, Size: 40, Tag: [{ Key: 'run', Value: run }] });
  await settle(DiskId, 'Available');
  await calls.ok('it says which it was made from', 'DescribeDisks', byId(DiskId), (body) => differs(diskIn(body), { SourceSnapshotId: SnapshotId, Size: 40 }));
  await calls.refused('a snapshot that disks were made from', 'DeleteSnapshot', { SnapshotId }, '403 SnapshotCreatedDisk');
  await calls.ok('it goes by force', 'DeleteSnapshot', { SnapshotId, Force: true });
  await calls.ok('a snapshot that is gone is not shown', 'DescribeSnapshots', { SnapshotIds: ids([SnapshotId]) }, (body) => differs(body.Snapshots, { Snapshot: [] }));
  await calls.refused('a snapshot is deleted again', 'DeleteSnapshot', { SnapshotId }, '404 InvalidSnapshotId.NotFound', '200');
  await erase(DiskId);
}

async function groups() {
  const { SnapshotGroupId } = await calls.ok('a group of snapshots is made', 'CreateSnapshotGroup', { DiskId: [disk], Name: 'group-1', ClientToken: `group-${run}` }, (body) =>
    /^ssg-[a-z0-9]+$/.test(body.SnapshotGroupId) ? [] : [body.SnapshotGroupId]);
  await calls.until('a group comes to its end', 'DescribeSnapshotGroups', { SnapshotGroupId: [SnapshotGroupId] }, (body) => {
    const [group] = body.SnapshotGroups.SnapshotGroup;
    return [...differs(group, { SnapshotGroupId, Status: 'accomplished', Name: 'group-1' }), ...differs(group && group.Snapshots.Snapshot[0], { SourceDiskId: disk })];
  });
  await calls.ok('a group is deleted', 'DeleteSnapshotGroup', { SnapshotGroupId });
  await calls.until('a group that is gone is not shown', 'DescribeSnapshotGroups', { SnapshotGroupId: [SnapshotGroupId] }, (body) =>
    differs(body.SnapshotGroups, { SnapshotGroup: [] }));
}

async function detachedAndDeleted() {
  const pair = { InstanceId: instance, DiskId: disk };
  await calls.ok('a disk is detached', 'DetachDisk', pair);
  await settle(disk, 'Available');
  await calls.ok('a disk that is detached is nowhere', 'DescribeDisks', byId(disk), (body) => differs(diskIn(body), { InstanceId: '', Device: '', Attachments: { Attachment: [] } }));
  await calls.refused('a second detach', 'DetachDisk', pair, '404 InvalidDisk.AlreadyDetached', '403 DependencyViolation', '403 IncorrectDiskStatus');
  await erase(disk);
  await calls.ok('a disk that is gone is not shown', 'DescribeDisks', byId(disk), (body) => differs(body.Disks, { Disk: [] }));
  await calls.refused('a disk is deleted again', 'DeleteDisk', { DiskId: disk }, '404 InvalidDiskId.NotFound', '200');
  await calls.refused('a disk that is gone is attached', 'AttachDisk', pair, '404 InvalidDiskId.NotFound');
}

// erase deletes a disk that is Available, which ECS refuses while it is new.
const erase = (id) => calls.patiently('a disk is deleted', 'DeleteDisk', { DiskId: id }, 'IncorrectDiskStatus.Initializing');

async function paging() {
  const count = 105, tag = [{ Key: 'page', Value: run }];
  const one = { ZoneId: zone, DiskCategory: 'cloud_essd', Size: 20, Tag: tag };
  const all = (await some(count, 8, (n) => calls.ok('many disks', 'CreateDisk', { ...one, ClientToken: `${run}-${n}` }))).map((body) => body.DiskId);
  const found = new Set();
  const note = (size) => (body) => {
    body.Disks.Disk.forEach((d) => found.add(d.DiskId));
    return differs({ size: body.Disks.Disk.length }, { size });
  };
  await calls.until('all are there', 'DescribeDisks', { Tag: tag, PageSize: 1 }, (body) => differs(body, { TotalCount: count }));
  await calls.ok('a page has ten if nobody says how many', 'DescribeDisks', { Tag: tag }, (body) => [...note(10)(body), ...differs(body, { PageNumber: 1, PageSize: 10, TotalCount: count })]);
  await calls.ok('100 IDs on a page of the usual size', 'DescribeDisks', { DiskIds: ids(all.slice(0, 100)) }, note(10));
  await calls.ok('100 IDs on a page of 100', 'DescribeDisks', { DiskIds: ids(all.slice(0, 100)), PageSize: 100 }, note(100));
  found.clear();
  for (const [page, size] of [[1, 50], [2, 50], [3, 5], [4, 0]]) {
    await calls.ok(`page ${page} of 50`, 'DescribeDisks', { Tag: tag, PageNumber: page, PageSize: 50 }, (body) => [...note(size)(body), ...differs(body, { PageNumber: page, TotalCount: count })]);
  }
  await calls.ok('pages have them all', 'DescribeDisks', { Tag: tag, PageSize: 1 }, () => differs({ found: found.size }, { found: count }));
  found.clear();
  let NextToken;
  for (const size of [40, 40, 25]) {
    ({ NextToken } = await calls.ok('pages by token', 'DescribeDisks', { Tag: tag, MaxResults: 40, ...(NextToken && { NextToken }) }, note(size)));
  }
  await calls.ok('the last page has no token, and tokens lead to them all', 'DescribeDisks', { Tag: tag, MaxResults: 500 }, (body) =>
    [...note(count)(body), ...differs({ last: NextToken || '', found: found.size }, { last: '', found: count })]);
  await calls.ok('a page by token has ten at least', 'DescribeDisks', { Tag: tag, MaxResults: 1 }, note(10));
  await some(count, 8, (n) => erase(all[n]));
}

// some does something n times, so many at a time, and returns what comes of each.
async function some(n, width, work) {
  const results = new Array(n);
  let next = 0;
  await Promise.all(Array.from({ length: width }, async () => {
    while (next < n) {
      const mine = next++;
      results[mine] = await work(mine);
    }
  }));
  return results;
}

async function otherKeys() {
  const own = calls.client;
  const as = async (other, work) => {
    calls.client = open(sdk, { ...place, keys: other });
    await work();
    calls.client = own;
  };
  const any = ['DescribeDisks', { MaxResults: 10 }];
  // 400 in the table of common errors; clients see 404.
  await as({ ...keys, id: 'LTAI5tNobodysKey' }, () => calls.refused('an unknown key', ...any, '404 InvalidAccessKeyId.NotFound', '400 InvalidAccessKeyId.NotFound'));
  await as({ ...keys, secret: 'wrong' }, () => calls.refused('a wrong secret', ...any, '400 SignatureDoesNotMatch'));
  await as({ ...keys, token: 'wrong' }, () => calls.refused('a token that is not of the key', ...any, '400 InvalidSecurityToken.MismatchWithAccessKey', '400 InvalidSecurityToken.Malformed'));
  const sts = open('pop-core', { ...place, keys });
  const { AccountId } = await sts.call('GetCallerIdentity', {});
  const { Credentials } = await sts.call('AssumeRole', { RoleArn: `acs:ram::${AccountId}:role/${env.ECS_ROLE}`, RoleSessionName: 'foreign' });
  const session = { id: Credentials.AccessKeyId, secret: Credentials.AccessKeySecret, token: Credentials.SecurityToken };
  await as(session, () => calls.ok('temporary keys', ...any));
  await as({ ...session, token: undefined }, () => calls.refused('temporary keys without their token', ...any, '404 InvalidAccessKeyId.NotFound', '400 InvalidSecurityToken.MismatchWithAccessKey', '400 InvalidSecurityToken.Malformed', '400 MissingSecurityToken'));
  await as({ ...session, secret: 'wrong' }, () => calls.refused('temporary keys with a wrong secret', ...any, '400 SignatureDoesNotMatch'));
  await calls.ok('the keys are right still', ...any);
}

main();
