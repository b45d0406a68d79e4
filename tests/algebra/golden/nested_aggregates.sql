-- SELECT n, count(*) AS groups FROM (SELECT a, count(*) AS n FROM r GROUP BY a) GROUP BY n

-- @1: sums, key a, changes paired
SELECT
  `a`,
  `n`,
  `_hw_rows`,
  `_hw_old_a`,
  `_hw_old_n`,
  `_hw_old__hw_rows`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`
FROM (
  SELECT
    `a` AS `a`,
    `_hw_rows` AS `n`,
    `_hw_rows` AS `_hw_rows`,
    `_hw_old_a` AS `_hw_old_a`,
    `_hw_old_n` AS `_hw_old_n`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    `_hw_rows` > 0 AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`
  FROM (
    SELECT
      `a` AS `a`,
      CAST((
        COALESCE(`_hw_old__hw_rows`, 0) + COALESCE(`_hw_d__hw_rows`, 0)
      ) AS BIGINT) AS `_hw_rows`,
      `_hw_old_a` AS `_hw_old_a`,
      `_hw_old_n` AS `_hw_old_n`,
      `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM (
      SELECT
        `a`,
        `_hw_d__hw_rows`,
        `_hw_old_a`,
        `_hw_old_n`,
        `_hw_old__hw_rows`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`
      FROM (
        SELECT
          `a`,
          SUM(`_hw_w`) AS `_hw_d__hw_rows`
        FROM (
          SELECT
            `a` AS `a`,
            `rowid` AS `r_rowid`,
            `_hw_w`
          FROM `r@delta`
        ) AS _t
        GROUP BY
          `a`
      ) AS _l
      LEFT JOIN (
        SELECT
          `a` AS `_hw_old_a`,
          `n` AS `_hw_old_n`,
          `_hw_rows` AS `_hw_old__hw_rows`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@1@old`
      ) AS _r
        ON `a` IS NOT DISTINCT FROM `_hw_old_a`
    ) AS _t
  ) AS _t
) AS _t
WHERE
  (
    `_hw_is` OR `_hw_was`
  )
  AND (
    NOT (
      (
        `_hw_is` AND `_hw_was`
      )
      AND `_hw_rows` IS NOT DISTINCT FROM `_hw_old__hw_rows`
    )
  )

-- @: sums, key n, changes paired
SELECT
  `n`,
  `groups`,
  `_hw_rows`,
  `_hw_old_n`,
  `_hw_old_groups`,
  `_hw_old__hw_rows`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`
FROM (
  SELECT
    `n` AS `n`,
    `_hw_rows` AS `groups`,
    `_hw_rows` AS `_hw_rows`,
    `_hw_old_n` AS `_hw_old_n`,
    `_hw_old_groups` AS `_hw_old_groups`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    `_hw_rows` > 0 AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`
  FROM (
    SELECT
      `n` AS `n`,
      CAST((
        COALESCE(`_hw_old__hw_rows`, 0) + COALESCE(`_hw_d__hw_rows`, 0)
      ) AS BIGINT) AS `_hw_rows`,
      `_hw_old_n` AS `_hw_old_n`,
      `_hw_old_groups` AS `_hw_old_groups`,
      `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM (
      SELECT
        `n`,
        `_hw_d__hw_rows`,
        `_hw_old_n`,
        `_hw_old_groups`,
        `_hw_old__hw_rows`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`
      FROM (
        SELECT
          `n`,
          SUM(`_hw_w`) AS `_hw_d__hw_rows`
        FROM (
          SELECT
            `a` AS `a`,
            `n` AS `n`,
            `_hw_w`
          FROM `@1@delta`
        ) AS _t
        GROUP BY
          `n`
      ) AS _l
      LEFT JOIN (
        SELECT
          `n` AS `_hw_old_n`,
          `groups` AS `_hw_old_groups`,
          `_hw_rows` AS `_hw_old__hw_rows`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@@old`
      ) AS _r
        ON `n` IS NOT DISTINCT FROM `_hw_old_n`
    ) AS _t
  ) AS _t
) AS _t
WHERE
  (
    `_hw_is` OR `_hw_was`
  )
  AND (
    NOT (
      (
        `_hw_is` AND `_hw_was`
      )
      AND `_hw_rows` IS NOT DISTINCT FROM `_hw_old__hw_rows`
    )
  )
