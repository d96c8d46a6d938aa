package actions

// AddTags, RemoveTags and DescribeTags are the older calls for tags, of one resource
// each. New clients use TagResources, UntagResources and ListTagResources.
var addTagsAction = Action{
	Name:     "AddTags",
	required: []string{"RegionId", "ResourceType", "ResourceId", "Tag.N"},
	tagged:   true,
	absent:   absentTagType,
	do:       tagResources,
}
