//! Apple's podcast categories, with their exact spelling.
//! <https://podcasters.apple.com/support/1691-apple-podcasts-categories>

/// Each category, and after the colon its subcategories.
const CATEGORIES: &str = "\
Arts: Books, Design, Fashion & Beauty, Food, Performing Arts, Visual Arts
Business: Careers, Entrepreneurship, Investing, Management, Marketing, Non-Profit
Comedy: Comedy Interviews, Improv, Stand-Up
Education: Courses, How To, Language Learning, Self-Improvement
Fiction: Comedy Fiction, Drama, Science Fiction
Government:
Health & Fitness: Alternative Health, Fitness, Medicine, Mental Health, Nutrition, Sexuality
History:
Kids & Family: Education for Kids, Parenting, Pets & Animals, Stories for Kids
Leisure: Animation & Manga, Automotive, Aviation, Crafts, Games, Hobbies, Home & Garden, \
    Video Games
Music: Music Commentary, Music History, Music Interviews
News: Business News, Daily News, Entertainment News, News Commentary, Politics, Sports News, \
    Tech News
Religion & Spirituality: Buddhism, Christianity, Hinduism, Islam, Judaism, Religion, \
    Spirituality
Science: Astronomy, Chemistry, Earth Sciences, Life Sciences, Mathematics, Natural Sciences, \
    Nature, Physics, Social Sciences
Society & Culture: Documentary, Personal Journals, Philosophy, Places & Travel, \
    Relationships
Sports: Baseball, Basketball, Cricket, Fantasy Sports, Football, Golf, Hockey, Rugby, \
    Running, Soccer, Swimming, Tennis, Volleyball, Wilderness, Wrestling
Technology:
True Crime:
TV & Film: After Shows, Film History, Film Interviews, Film Reviews, TV Reviews";

/// Whether Apple has this category and, if given, this subcategory of it.
pub(super) fn is_category(category: &str, subcategory: Option<&str>) -> bool {
    let mut lines = CATEGORIES.lines().filter_map(|line| line.split_once(':'));
    let known = lines.find(|(name, _)| *name == category);
    known.is_some_and(|(_, list)| {
        let mut all = list
            .split(',')
            .map(str::trim_start)
            .filter(|known| !known.is_empty());
        subcategory.is_none_or(|one| all.any(|known| known == one))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shown_category;

    /// The quoted words after each place where a rule of the database compares categories.
    fn of_migration(sql: &str) -> Vec<Vec<&str>> {
        let lists = sql.split("NEW.category IN (").skip(1);
        let words = lists.map(|list| {
            let list = list.split(')').next().unwrap_or_default();
            list.split('\'').skip(1).step_by(2).collect()
        });
        words.collect()
    }

    #[test]
    fn databases_and_feeds_know_the_same_categories() {
        let lines = CATEGORIES.lines().filter_map(|line| line.split_once(':'));
        let known: Vec<_> = lines.map(|(name, _)| name).collect();
        for (sql, places) in [
            (include_str!("../migrations/sqlite/0015_rules.sql"), 2),
            (include_str!("../migrations/postgres/0015_rules.sql"), 1),
        ] {
            let lists = of_migration(sql);
            assert_eq!(lists.len(), places);
            for list in lists {
                assert_eq!(list, known);
            }
        }
        for name in known {
            assert_eq!(shown_category(name, None), (Some(name), None), "in a feed");
        }
    }

    #[test]
    fn categories_are_spelled_as_apple_does() {
        assert_eq!(CATEGORIES.lines().count(), 19);
        assert_eq!(CATEGORIES.matches(',').count(), 91 - 15);
        for (category, subcategory, is_known) in [
            ("Leisure", None, true),
            ("Leisure", Some("Hobbies"), true),
            ("Leisure", Some("Video Games"), true),
            ("TV & Film", Some("TV Reviews"), true),
            ("True Crime", None, true),
            ("True Crime", Some(""), false),
            ("leisure", None, false),
            ("Leisure ", None, false),
            ("Cards", None, false),
            ("Hobbies", None, false),
            ("Leisure", Some("Tennis"), false),
            ("Leisure", Some("hobbies"), false),
            ("Leisure", Some("Hobbies, Crafts"), false),
            ("TV &amp; Film", None, false),
        ] {
            let found = is_category(category, subcategory);
            assert_eq!(found, is_known, "{category} > {subcategory:?}");
        }
    }
}
